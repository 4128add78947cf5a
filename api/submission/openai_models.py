"""The models that clients of OpenAI's API name when they know no other; they get the default one."""

ITS_MODELS = frozenset(
    {"whisper-1", "gpt-4o-transcribe", "gpt-4o-mini-transcribe", "gpt-4o-transcribe-diarize"}
)
