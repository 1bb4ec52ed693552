# Looks for each of the driver's functions as programs do, and says who answered: Weft's library or the driver.
import ctypes, json, re, sys

names = sys.argv[1].split(",")
libraries = {}
for prefix, file in (("cu", "libcuda.so.1"), ("nvml", "libnvidia-ml.so.1")):
    try:
        libraries[prefix] = ctypes.CDLL(file)
    except OSError as error:
        libraries[prefix] = None
        if prefix == "cu":
            print(json.dumps({"error": str(error)}), flush=True)
            sys.exit(0)

ours = []
for line in open("/proc/self/maps"):
    if "libweft.so" in line or sys.argv[2] in line:
        first, last = line.split()[0].split("-")
        ours.append((int(first, 16), int(last, 16)))

def who(address):
    if not address:
        return "absent"
    return "weft" if any(first <= address < last for first, last in ours) else "driver"

by_name = {}
for name in names:
    library = libraries["nvml" if name.startswith("nvml") else "cu"]
    try:
        by_name[name] = who(ctypes.cast(library[name], ctypes.c_void_p).value)
    except (AttributeError, TypeError):
        by_name[name] = "absent"

cuda = libraries["cu"]
by_resolver = {}
resolve = cuda["cuGetProcAddress_v2"]
for name in sorted({re.sub(r"(_v[0-9]+)?(_ptsz|_ptds)?$", "", name) for name in names if name.startswith("cu")}):
    pointer, status = ctypes.c_void_p(), ctypes.c_int()
    resolve(name.encode(), ctypes.byref(pointer), 12080, ctypes.c_ulonglong(0), ctypes.byref(status))
    by_resolver[name] = who(pointer.value)

device, context = ctypes.c_int(), ctypes.c_void_p()
code = cuda.cuInit(0) or cuda.cuDeviceGet(ctypes.byref(device), 0)
code = code or cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
code = code or cuda.cuCtxSetCurrent(context)
print(json.dumps({"by_name": by_name, "by_resolver": by_resolver, "code": code}), flush=True)
sys.stdin.read()
