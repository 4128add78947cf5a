"""The models that clients of OpenAI's API name when they know no other: they are asked for the default one."""

ITS_MODELS = frozenset(
    {"whisper-1", "gpt-4o-transcribe", "gpt-4o-mini-transcribe", "gpt-4o-transcribe-diarize"}
)
