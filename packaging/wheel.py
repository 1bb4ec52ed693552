"""Makes a wheel of a folder that is laid out like one: `python3 packaging/wheel.py FOLDER WHEEL`.

Adds the RECORD. The same folder gives the same bytes: names are sorted and every file has the same time.
"""

import base64
import hashlib
import os
import sys
import zipfile

#: The earliest that a zip file can say.
TIME = (1980, 1, 1, 0, 0, 0)


def files(folder):
    """All files below a folder, as names in a zip file, the metadata last, as the format recommends."""
    found = []
    for here, _, names in os.walk(folder):
        found += [os.path.relpath(os.path.join(here, name), folder) for name in names]
    return sorted(found, key=lambda name: (".dist-info" in name.split(os.sep)[0], name))


def main(folder, wheel):
    record = []
    with zipfile.ZipFile(wheel + ".new", "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:

        def add(name, data, executable=False):
            entry = zipfile.ZipInfo(name, TIME)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if executable else 0o100644) << 16
            archive.writestr(entry, data)

        for name in files(folder):
            path = os.path.join(folder, name)
            with open(path, "rb") as file:
                data = file.read()
            add(name, data, os.access(path, os.X_OK))
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record.append(f"{name},sha256={digest},{len(data)}\n")
        (information,) = {name.split("/")[0] for name in archive.namelist() if name.split("/")[0].endswith(".dist-info")}
        record.append(f"{information}/RECORD,,\n")
        add(f"{information}/RECORD", "".join(record))
    os.replace(wheel + ".new", wheel)


if __name__ == "__main__":
    main(*sys.argv[1:])
