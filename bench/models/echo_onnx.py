"""Writes the echo model as ONNX: `python echo_onnx.py FILE`. One Identity node; needs no package."""

import sys


def field(number, content):
    """One field of a protocol buffer: text, a nested message or a number."""
    if isinstance(content, int):
        return varint(number << 3) + varint(content)
    content = content.encode() if isinstance(content, str) else content
    return varint(number << 3 | 2) + varint(len(content)) + content


def varint(value):
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def tensor(name, sizes):
    """A ValueInfoProto of floats. A size is a number, or a name where it is free."""
    shape = b"".join(field(1, field(1 if isinstance(size, int) else 2, size)) for size in sizes)
    return field(1, name) + field(2, field(1, field(1, 1) + field(2, shape)))


node = field(1, "INPUT") + field(2, "OUTPUT") + field(4, "Identity")
graph = field(1, node) + field(2, "echo")
graph += field(11, tensor("INPUT", ["batch", 16])) + field(12, tensor("OUTPUT", ["batch", 16]))
model = field(1, 8) + field(2, "weft") + field(7, graph) + field(8, field(2, 17))

with open(sys.argv[1], "wb") as file:
    file.write(model)
