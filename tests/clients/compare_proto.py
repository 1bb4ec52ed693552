"""Compares `crates/rpc/proto/inference.proto` with what NVIDIA's `tritonclient` sends, and prints every difference.

Ours may leave out messages, fields and enum values; what it has must have the same name, number, type and label.

    python compare_proto.py DESCRIPTORS

DESCRIPTORS is the `inference.bin` that the build of `weft-rpc` writes (a file descriptor set).
"""

import sys

from google.protobuf import descriptor_pb2
from tritonclient.grpc import model_config_pb2, service_pb2


def theirs():
    """The messages, enums and methods of `tritonclient`, by full name."""
    files = []
    for module in (service_pb2, model_config_pb2):
        file = descriptor_pb2.FileDescriptorProto()
        module.DESCRIPTOR.CopyToProto(file)
        files.append(file)
    return collect(files)


def ours(path):
    """The same of the descriptors that our build wrote."""
    with open(path, "rb") as file:
        return collect(descriptor_pb2.FileDescriptorSet.FromString(file.read()).file)


def collect(files):
    messages, enums, methods = {}, {}, {}

    def walk(prefix, message):
        name = f"{prefix}.{message.name}"
        choices = [choice.name for choice in message.oneof_decl]
        messages[name] = {
            field.name: (
                field.number,
                field.Type.Name(field.type),
                field.Label.Name(field.label),
                field.type_name,
                choices[field.oneof_index] if field.HasField("oneof_index") else None,
            )
            for field in message.field
        }
        for nested in message.nested_type:
            walk(name, nested)
        for enum in message.enum_type:
            enums[f"{name}.{enum.name}"] = {value.name: value.number for value in enum.value}

    for file in files:
        prefix = f".{file.package}"
        for message in file.message_type:
            walk(prefix, message)
        for enum in file.enum_type:
            enums[f"{prefix}.{enum.name}"] = {value.name: value.number for value in enum.value}
        for service in file.service:
            for method in service.method:
                methods[f"{prefix}.{service.name}/{method.name}"] = (
                    method.input_type,
                    method.output_type,
                    method.client_streaming,
                    method.server_streaming,
                )
    return messages, enums, methods


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    our_messages, our_enums, our_methods = ours(sys.argv[1])
    their_messages, their_enums, their_methods = theirs()
    wrong, missing = [], []
    for ours_of, theirs_of in ((our_messages, their_messages), (our_enums, their_enums)):
        for name, members in ours_of.items():
            if name not in theirs_of:
                wrong.append(f"{name} is ours alone")
                continue
            for member, facts in members.items():
                known = theirs_of[name].get(member)
                if known != facts:
                    wrong.append(f"{name}.{member} is {facts}, and theirs is {known}")
            missing += [f"{name}.{member}" for member in theirs_of[name] if member not in members]
        missing += [name for name in theirs_of if name not in ours_of]
    for name, facts in our_methods.items():
        if their_methods.get(name) != facts:
            wrong.append(f"{name} is {facts}, and theirs is {their_methods.get(name)}")
    wrong += [f"method {name} is missing" for name in their_methods if name not in our_methods]
    for line in missing:
        print("left out:", line)
    for line in wrong:
        print("DIFFERENT:", line)
    fields = sum(len(members) for members in our_messages.values())
    print(f"{len(our_messages)} messages, {fields} fields, {len(our_methods)} methods: {len(wrong)} differences")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
