"""An xDS-enabled gRPC server and a plain client of it: calls each method once and prints how the calls ended, as JSON.

Usage: grpc_server.py HOST:PORT METHOD ...; the bootstrap is in GRPC_XDS_BOOTSTRAP_CONFIG.
"""

import json
import sys
from concurrent.futures import ThreadPoolExecutor

import grpc


class Echo(grpc.GenericRpcHandler):
    def service(self, details):
        return grpc.unary_unary_rpc_method_handler(lambda request, context: request)


def call(address, method):
    with grpc.insecure_channel(address) as channel:
        try:
            channel.unary_unary(method)(b"", timeout=20, wait_for_ready=True)
            return "OK"
        except grpc.RpcError as error:
            return error.code().name


def main():
    address, methods = sys.argv[1], sys.argv[2:]
    server = grpc.server(ThreadPoolExecutor(4), handlers=[Echo()], xds=True)
    server.add_secure_port(address, grpc.xds_server_credentials(grpc.insecure_server_credentials()))
    server.start()
    print(json.dumps({method: call(address, method) for method in methods}), flush=True)
    server.stop(None)


main()
