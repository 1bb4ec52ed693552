//! The driver's types, as far as we look at them. Their layouts are those of `cuda.h` and `nvml.h`.

use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong};

/// What a driver function answers; 0 is success. NVML's functions answer the same way.
pub(crate) type CuResult = c_int;

pub(crate) const SUCCESS: CuResult = 0;
pub(crate) const OUT_OF_MEMORY: CuResult = 2;

/// A pointer that the driver writes or reads through, with what it points at. Null is allowed.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct Out<T>(pub(crate) *mut T);

impl<T> Clone for Out<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Out<T> {}

impl<T: Copy> Out<T> {
    /// What is there. The program passed the pointer to the driver as one to a `T`, and the driver has accepted it or is
    /// about to read it.
    #[inline]
    pub(crate) fn get(self) -> Option<T> {
        if self.0.is_null() || !self.0.is_aligned() {
            return None;
        }
        // SAFETY: not null and aligned (just checked); the driver's contract, which the caller keeps, makes it point at
        // a `T` that is alive during the call. `T` is plain numbers in all uses.
        Some(unsafe { self.0.read() })
    }

    /// Changes what the driver wrote.
    #[inline]
    pub(crate) fn set(self, value: T) {
        if self.0.is_null() || !self.0.is_aligned() {
            return;
        }
        // SAFETY: as for `get`; only called for pointers that the driver has just written through.
        unsafe { self.0.write(value) }
    }
}

/// Something that we pass on and do not look at.
pub(crate) type Opaque = Out<u8>;
/// A C string that the program passed.
pub(crate) type Text = *const c_char;

/// A text's bytes. The program passed it to the driver as a C string, and the driver has accepted it.
pub(crate) fn bytes<'a>(text: Text) -> Option<&'a [u8]> {
    if text.is_null() {
        return None;
    }
    // SAFETY: not null (just checked); the driver's contract, which the program kept, makes it a C string that is alive
    // during the call, and callers do not keep it longer.
    Some(unsafe { CStr::from_ptr(text) }.to_bytes())
}

macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident($inner:ty);)*) => {
        $($(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(transparent)]
        pub(crate) struct $name(pub(crate) $inner);)*
    };
}

handles! {
    /// `CUfunction`, or a `CUkernel` in its place.
    Function(usize);
    /// `CUstream`; 0, 1 and 2 are default streams.
    Stream(usize);
    /// `CUevent`.
    Event(usize);
    /// `CUgraph`.
    Graph(usize);
    /// `CUgraphExec`.
    GraphExec(usize);
    /// `CUcontext`.
    Context(usize);
    /// `CUdevice`, an ordinal.
    Device(c_int);
    /// `CUdeviceptr`.
    DevicePointer(u64);
    /// `CUarray`, `CUmipmappedArray`.
    Array(usize);
    /// `CUmemGenericAllocationHandle`.
    Allocation(c_ulonglong);
    /// `CUmemoryPool`, `CUmodule`, `CUlibrary`.
    Other(usize);
}

impl Stream {
    /// Stream 0 by its other name, `CU_STREAM_PER_THREAD`, where it means that.
    #[inline(always)]
    pub(crate) fn real<const PER_THREAD: bool>(self) -> Stream {
        if PER_THREAD && self.0 == 0 { Stream(2) } else { self }
    }
}

/// `CUlaunchConfig`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct LaunchConfig {
    pub(crate) grid: [c_uint; 3],
    pub(crate) block: [c_uint; 3],
    pub(crate) shared: c_uint,
    pub(crate) stream: Stream,
    pub(crate) attributes: usize,
    pub(crate) count: c_uint,
}

/// `CUDA_ARRAY_DESCRIPTOR`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct ArrayDescriptor {
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) format: c_uint,
    pub(crate) channels: c_uint,
}

/// `CUDA_ARRAY3D_DESCRIPTOR`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Array3dDescriptor {
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) depth: usize,
    pub(crate) format: c_uint,
    pub(crate) channels: c_uint,
    pub(crate) flags: c_uint,
}

/// The beginning of `CUmemAllocationProp`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct AllocationProperties {
    kind: c_uint,
    handles: c_uint,
    /// 1 for a device.
    pub(crate) location: c_uint,
    pub(crate) device: c_int,
}

/// `CUipcMemHandle`, passed by value.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct IpcHandle([u8; 64]);

/// `nvmlMemory_t`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct NvmlMemory {
    pub(crate) total: c_ulonglong,
    pub(crate) free: c_ulonglong,
    pub(crate) used: c_ulonglong,
}

/// `nvmlMemory_v2_t`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct NvmlMemory2 {
    pub(crate) version: c_uint,
    pub(crate) total: c_ulonglong,
    pub(crate) reserved: c_ulonglong,
    pub(crate) free: c_ulonglong,
    pub(crate) used: c_ulonglong,
}

const _: () = {
    assert!(size_of::<LaunchConfig>() == 56 && std::mem::offset_of!(LaunchConfig, stream) == 32);
    assert!(size_of::<ArrayDescriptor>() == 24 && size_of::<Array3dDescriptor>() == 40);
    assert!(std::mem::offset_of!(AllocationProperties, device) == 12);
    assert!(size_of::<NvmlMemory2>() == 40);
};
