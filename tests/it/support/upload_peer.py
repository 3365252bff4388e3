"""Uploads 50 MB with a token that is not valid, with one of several clients, and prints the status of the response.

Usage: upload_peer.py CLIENT URL
"""

import socket
import ssl
import sys
import warnings

SIZE = 50_000_000
HEADERS = {"Authorization": "Bearer not-a-token", "Content-Type": "application/octet-stream"}


def with_requests(url):
    import requests

    warnings.simplefilter("ignore")
    return requests.post(url, data=bytes(SIZE), headers=HEADERS, verify=False, timeout=60).status_code


def with_httpx(url):
    import httpx

    return httpx.post(url, content=bytes(SIZE), headers=HEADERS, verify=False, timeout=60).status_code


def blocking(url):
    """Reads nothing before everything is sent, as many simple clients do."""
    scheme, _, rest = url.partition("://")
    host, port = rest.split("/")[0].split(":")
    stream = socket.create_connection((host, int(port)), timeout=60)
    if scheme == "https":
        context = ssl._create_unverified_context()
        stream = context.wrap_socket(stream, server_hostname=host)
    head = f"POST /private HTTP/1.1\r\nHost: {host}\r\nContent-Length: {SIZE}\r\n"
    head += "".join(f"{name}: {value}\r\n" for name, value in HEADERS.items())
    stream.sendall(head.encode() + b"\r\n")
    for _ in range(SIZE // 50_000):
        stream.sendall(bytes(50_000))
    return int(stream.recv(16).split()[1])


CLIENTS = {"requests": with_requests, "httpx": with_httpx, "blocking": blocking}

print(CLIENTS[sys.argv[1]](sys.argv[2]))
