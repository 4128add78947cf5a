"""WeNet's gRPC service (`runtime/core/grpc/wenet.proto`) over the same sessions as the WebSocket routes.

Optional: needs grpcio and protobuf (`pip install 'spool-transcribe[grpc]'`), and SPOOL_GRPC_PORT.
"""
