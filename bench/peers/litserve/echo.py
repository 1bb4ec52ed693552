"""Gives back the numbers it was sent, for LitServe: `python echo.py PORT`. Its JSON is its own."""

import sys

import litserve


class Echo(litserve.LitAPI):
    def setup(self, device):
        pass

    def decode_request(self, request):
        return [float(number) for number in request["input"]]

    def predict(self, numbers):
        return numbers

    def encode_response(self, numbers):
        return {"output": numbers}


if __name__ == "__main__":
    server = litserve.LitServer(Echo(), accelerator="cpu", workers_per_device=1)
    server.run(host="127.0.0.1", port=int(sys.argv[1]), num_api_servers=1, generate_client_file=False)
