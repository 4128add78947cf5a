"""The messages of `wenet.proto`, built from a descriptor, which needs neither generated code nor protoc."""

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

SERVICE, METHOD = "wenet.ASR", "Recognize"

_FIELD = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    "int32": _FIELD.TYPE_INT32,
    "bool": _FIELD.TYPE_BOOL,
    "bytes": _FIELD.TYPE_BYTES,
    "string": _FIELD.TYPE_STRING,
}
_ENUMS = {
    "Status": ("ok", "failed"),
    "Type": ("server_ready", "partial_result", "final_result", "speech_end"),
}


def _add_fields(message: Any, *fields: tuple[str, str]) -> None:  # noqa: ANN401 - a descriptor, built as it goes
    """Fields (type, name), numbered from 1; a type may be `repeated`."""
    for number, (kind, name) in enumerate(fields, 1):
        field = message.field.add(name=name, number=number)
        kind, repeated = kind.removeprefix("repeated "), kind.startswith("repeated ")
        field.label = _FIELD.LABEL_REPEATED if repeated else _FIELD.LABEL_OPTIONAL
        if kind in _SCALARS:
            field.type = _SCALARS[kind]
        else:
            field.type = _FIELD.TYPE_ENUM if kind in _ENUMS else _FIELD.TYPE_MESSAGE
            owner = "Request" if kind == "DecodeConfig" else "Response"
            field.type_name = f".wenet.{owner}.{kind}"


def _describe() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name="wenet.proto", package="wenet", syntax="proto3")
    request = file.message_type.add(name="Request")
    config = request.nested_type.add(name="DecodeConfig")
    _add_fields(config, ("int32", "nbest_config"), ("bool", "continuous_decoding_config"))
    request.oneof_decl.add(name="RequestPayload")
    _add_fields(request, ("DecodeConfig", "decode_config"), ("bytes", "audio_data"))
    for field in request.field:
        field.oneof_index = 0
    response = file.message_type.add(name="Response")
    piece = response.nested_type.add(name="OnePiece")
    _add_fields(piece, ("string", "word"), ("int32", "start"), ("int32", "end"))
    best = response.nested_type.add(name="OneBest")
    _add_fields(best, ("string", "sentence"), ("repeated OnePiece", "wordpieces"))
    for name, values in _ENUMS.items():
        enum = response.enum_type.add(name=name)
        for number, value in enumerate(values):
            enum.value.add(name=value, number=number)
    _add_fields(response, ("Status", "status"), ("Type", "type"), ("repeated OneBest", "nbest"))
    service = file.service.add(name=SERVICE.partition(".")[2])
    service.method.add(
        name=METHOD,
        input_type=".wenet.Request",
        output_type=".wenet.Response",
        client_streaming=True,
        server_streaming=True,
    )
    return file


_POOL = descriptor_pool.DescriptorPool()
_POOL.Add(_describe())

Request: Any = message_factory.GetMessageClass(_POOL.FindMessageTypeByName("wenet.Request"))
"""`decode_config` (`nbest_config`, `continuous_decoding_config`) first, then `audio_data`, 16-bit PCM."""
Response: Any = message_factory.GetMessageClass(_POOL.FindMessageTypeByName("wenet.Response"))
"""`status`, `type`, and `nbest` of `sentence` and `wordpieces` (`word`, `start`, `end` in milliseconds)."""
