"""Uploads with a token that is not valid, with one of several clients, and prints the status of the response.

Usage: upload_peer.py CLIENT URL [BYTES]
"""

import http.client
import socket
import ssl
import sys
import time
import warnings

SIZE = int(sys.argv[3]) if len(sys.argv) > 3 else 50_000_000
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


def pausing():
    """A body that is made while it is sent."""
    for _ in range(3):
        yield bytes(1_000_000)
        time.sleep(1.5)
    yield bytes(1_000_000)


def requests_pausing(url):
    import requests

    warnings.simplefilter("ignore")
    return requests.post(url, data=pausing(), headers=HEADERS, verify=False, timeout=60).status_code


def httpx_pausing(url):
    import httpx

    return httpx.post(url, content=pausing(), headers=HEADERS, verify=False, timeout=60).status_code


def head_first(url):
    """Sends the body some time after the head."""
    scheme, _, rest = url.partition("://")
    host, path = rest.split("/", 1)
    secure = {"context": ssl._create_unverified_context()} if scheme == "https" else {}
    kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
    connection = kind(host, timeout=60, **secure)
    connection.putrequest("POST", "/" + path)
    for name, value in HEADERS.items():
        connection.putheader(name, value)
    connection.putheader("Content-Length", "1000000")
    connection.endheaders()
    time.sleep(1.5)
    for _ in range(10):
        connection.send(bytes(100_000))
    return connection.getresponse().status


CLIENTS = {
    "requests-pausing": requests_pausing,
    "httpx-pausing": httpx_pausing,
    "head-first": head_first,
    "requests": with_requests,
    "httpx": with_httpx,
    "blocking": blocking,
}

print(CLIENTS[sys.argv[1]](sys.argv[2]))
