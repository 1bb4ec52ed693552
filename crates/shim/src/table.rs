//! Every function that is intercepted: one line each.
//!
//! From a line come the export, the slot for the real function, and the answers of `dlsym` and `cuGetProcAddress`. A
//! line says the name that the library exports; the name, the CUDA version and the default stream under which
//! `cuGetProcAddress` hands it out; what it takes; and the function that does the work, unless another says that the call
//! may go to the driver as it is. That function is given the arguments and the driver to call;
//! [`boundary`](crate::boundary) makes sure that the driver is called at most once, and also when the function fails.

use crate::boundary::enter;
use crate::ops::{capture, code, context, graph, launch, memory, query, sync};
use crate::types::{
    Allocation, AllocationProperties, Array, Array3dDescriptor, ArrayDescriptor, Context, CuResult, Device,
    DevicePointer, Event, Function, Graph, GraphExec, IpcHandle, LaunchConfig, NvmlMemory, NvmlMemory2, Opaque, Other,
    Out, Stream, Text,
};
use crate::{resolve, unseen};
use std::ffi::{c_int, c_uint, c_ulonglong};
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// Where the real function is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Library {
    Cuda,
    Nvml,
}

/// Which default stream a variant of a function means by stream 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DefaultStream {
    /// The one of the whole context; also functions without a stream.
    Legacy,
    /// One for each thread.
    PerThread,
}
use DefaultStream::{Legacy, PerThread};

/// One intercepted function.
pub(crate) struct Row {
    /// What the library exports.
    pub(crate) name: &'static str,
    pub(crate) library: Library,
    /// What `cuGetProcAddress` is asked for, from which version on, and with which default stream.
    pub(crate) base: &'static str,
    pub(crate) since: c_int,
    pub(crate) default: DefaultStream,
    /// Our function.
    pub(crate) ours: *const (),
}

// SAFETY: `ours` is the address of a function, which all threads may have.
unsafe impl Sync for Row {}

/// What a call looks at first. Kernels are near the beginning of the table, in the same cache line as `quiet`.
#[repr(C, align(64))]
pub(crate) struct Hooks {
    /// On which GPU kernels are only counted, if on any.
    pub(crate) quiet: AtomicU64,
    /// And for how long, by the daemon's clock.
    pub(crate) until_ns: AtomicU64,
    /// The real functions, once they are known.
    pub(crate) real: [AtomicPtr<()>; COUNT],
}

/// Whether an address is that of one of our functions.
pub(crate) fn is_ours(address: *mut ()) -> bool {
    TABLE.iter().any(|row| std::ptr::eq(row.ours, address))
}

macro_rules! entry_points {
    ($($library:ident {$(
        fn $name:ident = $base:literal $since:literal $default:ident ($($argument:ident: $type:ty),* $(,)?) => $op:path
            $(, unless $passes:path, $where:ident)?;
    )*})*) => {
        /// The number of a function in [`TABLE`] and [`Hooks::real`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(non_camel_case_types, reason = "the driver's names")]
        pub(crate) enum Entry { $($($name,)*)* }

        /// All of them.
        pub(crate) static TABLE: [Row; COUNT] = [$($(Row {
            name: stringify!($name),
            library: Library::$library,
            base: $base,
            since: $since,
            default: $default,
            ours: exports::$name as *const (),
        },)*)*];

        /// How many there are.
        pub(crate) const COUNT: usize = [$($(Entry::$name,)*)*].len();

        /// What a call needs.
        pub(crate) static HOOKS: Hooks = Hooks {
            quiet: AtomicU64::new(0),
            until_ns: AtomicU64::new(0),
            real: [const { AtomicPtr::new(std::ptr::null_mut()) }; COUNT],
        };

        #[allow(non_snake_case, reason = "the driver's names")]
        pub(crate) mod exports {
            use super::*;
            $($(
                /// The driver's function of this name, under the tenant's share.
                #[allow(improper_ctypes_definitions, clippy::too_many_arguments, reason = "the driver's signature")]
                #[cfg_attr(not(test), unsafe(no_mangle))]
                pub(crate) extern "C" fn $name($($argument: $type),*) -> CuResult {
                    let real = HOOKS.real[Entry::$name as usize].load(Ordering::Acquire);
                    let passes = !real.is_null() && (false $(|| $passes($where))?);
                    // One call for both, which so is a jump that leaves the program's arguments where they are.
                    call::$name(if passes { real } else { looked_at::$name as *mut () }, $($argument),*)
                }
            )*)*
        }

        /// What is done where a call is looked at.
        #[allow(non_snake_case, reason = "the driver's names")]
        mod looked_at {
            use super::*;
            $($(
                $(
                    // Apart from the few instructions of a call that is not.
                    #[doc = stringify!($passes)]
                    #[inline(never)]
                )?
                #[allow(improper_ctypes_definitions, clippy::too_many_arguments, reason = "the driver's signature")]
                pub(super) extern "C" fn $name($($argument: $type),*) -> CuResult {
                    let call = move |real: *mut ()| call::$name(real, $($argument),*);
                    enter(Entry::$name, call, #[inline(always)] |driver| $op(driver, $($argument),*))
                }
            )*)*
        }

        /// Calls by address: of the driver's own function, or of what is done where a call is looked at.
        #[allow(non_snake_case, reason = "the driver's names")]
        mod call {
            use super::*;
            $($(
                #[allow(clippy::too_many_arguments, reason = "the driver's signature")]
                #[inline(always)]
                pub(super) fn $name(address: *mut (), $($argument: $type),*) -> CuResult {
                    type Called = unsafe extern "C" fn($($type),*) -> CuResult;
                    // SAFETY: it is the address that the driver's library gives for this name, whose type in the
                    // driver's header is `Called`, or ours, which has the same; pointers to functions are of one size.
                    let function = unsafe { std::mem::transmute::<*mut (), Called>(address) };
                    // SAFETY: these are the program's own arguments, passed on unchanged.
                    unsafe { function($($argument),*) }
                }
            )*)*
        }
    };
}

entry_points! {
Cuda {
    // How programs find everything else.
    fn cuGetProcAddress = "cuGetProcAddress" 11030 Legacy
        (symbol: Text, function: Out<*mut ()>, version: c_int, flags: c_ulonglong) => resolve::get_proc_address;
    fn cuGetProcAddress_v2 = "cuGetProcAddress" 12000 Legacy
        (symbol: Text, function: Out<*mut ()>, version: c_int, flags: c_ulonglong, status: Opaque)
        => resolve::get_proc_address_2;

    // Work: these pass the gate.
    fn cuLaunchKernel = "cuLaunchKernel" 4000 Legacy
        (f: Function, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint, shared: c_uint,
         stream: Stream, parameters: Opaque, extra: Opaque) => launch::kernel::<false>,
        unless unseen::on::<false>, stream;
    fn cuLaunchKernel_ptsz = "cuLaunchKernel" 7000 PerThread
        (f: Function, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint, shared: c_uint,
         stream: Stream, parameters: Opaque, extra: Opaque) => launch::kernel::<true>,
        unless unseen::on::<true>, stream;
    fn cuLaunchKernelEx = "cuLaunchKernelEx" 11060 Legacy
        (config: Out<LaunchConfig>, f: Function, parameters: Opaque, extra: Opaque) => launch::kernel_ex::<false>,
        unless unseen::as_said::<false>, config;
    fn cuLaunchKernelEx_ptsz = "cuLaunchKernelEx" 11060 PerThread
        (config: Out<LaunchConfig>, f: Function, parameters: Opaque, extra: Opaque) => launch::kernel_ex::<true>,
        unless unseen::as_said::<true>, config;
    fn cuLaunchCooperativeKernel = "cuLaunchCooperativeKernel" 9000 Legacy
        (f: Function, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint, shared: c_uint,
         stream: Stream, parameters: Opaque) => launch::cooperative::<false>;
    fn cuLaunchCooperativeKernel_ptsz = "cuLaunchCooperativeKernel" 9000 PerThread
        (f: Function, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint, shared: c_uint,
         stream: Stream, parameters: Opaque) => launch::cooperative::<true>;
    fn cuGraphLaunch = "cuGraphLaunch" 10000 Legacy (graph: GraphExec, stream: Stream) => launch::graph::<false>;
    fn cuGraphLaunch_ptsz = "cuGraphLaunch" 10000 PerThread (graph: GraphExec, stream: Stream) => launch::graph::<true>;

    // Graphs: how many kernels a launch of one is.
    fn cuGraphInstantiate = "cuGraphInstantiate" 10000 Legacy
        (out: Out<GraphExec>, graph: Graph, node: Opaque, log: Opaque, bytes: usize) => graph::instantiate_logged;
    fn cuGraphInstantiate_v2 = "cuGraphInstantiate" 11000 Legacy
        (out: Out<GraphExec>, graph: Graph, node: Opaque, log: Opaque, bytes: usize) => graph::instantiate_logged;
    fn cuGraphInstantiateWithFlags = "cuGraphInstantiateWithFlags" 11040 Legacy
        (out: Out<GraphExec>, graph: Graph, flags: c_ulonglong) => graph::instantiate_flags;
    fn cuGraphInstantiateWithParams = "cuGraphInstantiateWithParams" 12000 Legacy
        (out: Out<GraphExec>, graph: Graph, parameters: Opaque) => graph::instantiate_parameters;
    fn cuGraphInstantiateWithParams_ptsz = "cuGraphInstantiateWithParams" 12000 PerThread
        (out: Out<GraphExec>, graph: Graph, parameters: Opaque) => graph::instantiate_parameters;
    fn cuGraphExecDestroy = "cuGraphExecDestroy" 10000 Legacy (graph: GraphExec) => graph::destroy;

    // Waiting for work: the end of a burst.
    fn cuStreamSynchronize = "cuStreamSynchronize" 2000 Legacy (stream: Stream) => sync::stream::<false>;
    fn cuStreamSynchronize_ptsz = "cuStreamSynchronize" 7000 PerThread (stream: Stream) => sync::stream::<true>;
    fn cuStreamQuery = "cuStreamQuery" 2000 Legacy (stream: Stream) => sync::stream_query::<false>;
    fn cuStreamQuery_ptsz = "cuStreamQuery" 7000 PerThread (stream: Stream) => sync::stream_query::<true>;
    fn cuEventRecord = "cuEventRecord" 2000 Legacy (event: Event, stream: Stream) => sync::record::<false>;
    fn cuEventRecord_ptsz = "cuEventRecord" 7000 PerThread (event: Event, stream: Stream) => sync::record::<true>;
    fn cuEventRecordWithFlags = "cuEventRecordWithFlags" 11010 Legacy
        (event: Event, stream: Stream, flags: c_uint) => sync::record_flags::<false>;
    fn cuEventRecordWithFlags_ptsz = "cuEventRecordWithFlags" 11010 PerThread
        (event: Event, stream: Stream, flags: c_uint) => sync::record_flags::<true>;
    fn cuEventSynchronize = "cuEventSynchronize" 2000 Legacy (event: Event) => sync::event;
    fn cuEventQuery = "cuEventQuery" 2000 Legacy (event: Event) => sync::event_query;
    fn cuCtxSynchronize = "cuCtxSynchronize" 2000 Legacy () => sync::context;
    fn cuCtxSynchronize_v2 = "cuCtxSynchronize" 13000 Legacy (context: Context) => sync::context_2;
    fn cuMemcpy = "cuMemcpy" 4000 Legacy (to: DevicePointer, from: DevicePointer, bytes: usize) => sync::copy;
    fn cuMemcpy_ptds = "cuMemcpy" 7000 PerThread (to: DevicePointer, from: DevicePointer, bytes: usize) => sync::copy;
    fn cuMemcpyHtoD_v2 = "cuMemcpyHtoD" 3020 Legacy (to: DevicePointer, from: Opaque, bytes: usize) => sync::copy_in;
    fn cuMemcpyHtoD_v2_ptds = "cuMemcpyHtoD" 7000 PerThread
        (to: DevicePointer, from: Opaque, bytes: usize) => sync::copy_in;
    fn cuMemcpyDtoH_v2 = "cuMemcpyDtoH" 3020 Legacy (to: Opaque, from: DevicePointer, bytes: usize) => sync::copy_out;
    fn cuMemcpyDtoH_v2_ptds = "cuMemcpyDtoH" 7000 PerThread
        (to: Opaque, from: DevicePointer, bytes: usize) => sync::copy_out;
    fn cuMemcpyAsync = "cuMemcpyAsync" 4000 Legacy
        (to: DevicePointer, from: DevicePointer, bytes: usize, stream: Stream) => sync::copy_async::<false>;
    fn cuMemcpyAsync_ptsz = "cuMemcpyAsync" 7000 PerThread
        (to: DevicePointer, from: DevicePointer, bytes: usize, stream: Stream) => sync::copy_async::<true>;
    fn cuMemcpyDtoHAsync_v2 = "cuMemcpyDtoHAsync" 3020 Legacy
        (to: Opaque, from: DevicePointer, bytes: usize, stream: Stream) => sync::copy_out_async::<false>;
    fn cuMemcpyDtoHAsync_v2_ptsz = "cuMemcpyDtoHAsync" 7000 PerThread
        (to: Opaque, from: DevicePointer, bytes: usize, stream: Stream) => sync::copy_out_async::<true>;
    fn cuStreamWaitEvent = "cuStreamWaitEvent" 3020 Legacy
        (stream: Stream, event: Event, flags: c_uint) => sync::stream_waits::<false>;
    fn cuStreamWaitEvent_ptsz = "cuStreamWaitEvent" 7000 PerThread
        (stream: Stream, event: Event, flags: c_uint) => sync::stream_waits::<true>;

    // Memory: every way to get some, and every way to give it back.
    fn cuMemAlloc_v2 = "cuMemAlloc" 3020 Legacy (out: Out<DevicePointer>, bytes: usize) => memory::alloc;
    fn cuMemAllocPitch_v2 = "cuMemAllocPitch" 3020 Legacy
        (out: Out<DevicePointer>, pitch: Out<usize>, width: usize, height: usize, element: c_uint) => memory::alloc_pitch;
    fn cuMemAllocManaged = "cuMemAllocManaged" 6000 Legacy
        (out: Out<DevicePointer>, bytes: usize, flags: c_uint) => memory::alloc_managed;
    fn cuMemAllocAsync = "cuMemAllocAsync" 11020 Legacy
        (out: Out<DevicePointer>, bytes: usize, stream: Stream) => memory::alloc_async;
    fn cuMemAllocAsync_ptsz = "cuMemAllocAsync" 11020 PerThread
        (out: Out<DevicePointer>, bytes: usize, stream: Stream) => memory::alloc_async;
    fn cuMemAllocFromPoolAsync = "cuMemAllocFromPoolAsync" 11020 Legacy
        (out: Out<DevicePointer>, bytes: usize, pool: Other, stream: Stream) => memory::alloc_pool;
    fn cuMemAllocFromPoolAsync_ptsz = "cuMemAllocFromPoolAsync" 11020 PerThread
        (out: Out<DevicePointer>, bytes: usize, pool: Other, stream: Stream) => memory::alloc_pool;
    fn cuMemFree_v2 = "cuMemFree" 3020 Legacy (pointer: DevicePointer) => memory::free;
    fn cuMemFreeAsync = "cuMemFreeAsync" 11020 Legacy (pointer: DevicePointer, stream: Stream) => memory::free_async;
    fn cuMemFreeAsync_ptsz = "cuMemFreeAsync" 11020 PerThread
        (pointer: DevicePointer, stream: Stream) => memory::free_async;
    fn cuMemCreate = "cuMemCreate" 10020 Legacy
        (out: Out<Allocation>, bytes: usize, properties: Out<AllocationProperties>, flags: c_ulonglong) => memory::create;
    fn cuMemRelease = "cuMemRelease" 10020 Legacy (allocation: Allocation) => memory::release;
    fn cuMemRetainAllocationHandle = "cuMemRetainAllocationHandle" 11000 Legacy
        (out: Out<Allocation>, address: usize) => memory::retain;
    fn cuMemMap = "cuMemMap" 10020 Legacy
        (pointer: DevicePointer, bytes: usize, offset: usize, allocation: Allocation, flags: c_ulonglong) => memory::map;
    fn cuMemUnmap = "cuMemUnmap" 10020 Legacy (pointer: DevicePointer, bytes: usize) => memory::unmap;
    fn cuArrayCreate_v2 = "cuArrayCreate" 3020 Legacy
        (out: Out<Array>, descriptor: Out<ArrayDescriptor>) => memory::array;
    fn cuArray3DCreate_v2 = "cuArray3DCreate" 3020 Legacy
        (out: Out<Array>, descriptor: Out<Array3dDescriptor>) => memory::array_3d;
    fn cuArrayDestroy = "cuArrayDestroy" 2000 Legacy (array: Array) => memory::array_destroy;
    fn cuMipmappedArrayCreate = "cuMipmappedArrayCreate" 5000 Legacy
        (out: Out<Array>, descriptor: Out<Array3dDescriptor>, levels: c_uint) => memory::mipmapped;
    fn cuMipmappedArrayDestroy = "cuMipmappedArrayDestroy" 5000 Legacy (array: Array) => memory::array_destroy;
    fn cuIpcOpenMemHandle_v2 = "cuIpcOpenMemHandle" 11000 Legacy
        (out: Out<DevicePointer>, handle: IpcHandle, flags: c_uint) => memory::ipc_open;
    fn cuIpcCloseMemHandle = "cuIpcCloseMemHandle" 4010 Legacy (pointer: DevicePointer) => memory::ipc_close;

    // What the program is told there is.
    fn cuMemGetInfo_v2 = "cuMemGetInfo" 3020 Legacy (free: Out<usize>, total: Out<usize>) => query::info;
    fn cuDeviceTotalMem_v2 = "cuDeviceTotalMem" 3020 Legacy (total: Out<usize>, device: Device) => query::total;

    // Contexts: when a GPU comes into use, and when events and memory go with a context.
    fn cuDevicePrimaryCtxRetain = "cuDevicePrimaryCtxRetain" 7000 Legacy
        (out: Out<Context>, device: Device) => context::retain;
    fn cuDevicePrimaryCtxRelease_v2 = "cuDevicePrimaryCtxRelease" 11000 Legacy (device: Device) => context::release;
    fn cuDevicePrimaryCtxReset_v2 = "cuDevicePrimaryCtxReset" 11000 Legacy (device: Device) => context::reset;
    fn cuCtxCreate_v2 = "cuCtxCreate" 3020 Legacy
        (out: Out<Context>, flags: c_uint, device: Device) => context::create;
    fn cuCtxCreate_v3 = "cuCtxCreate" 11040 Legacy
        (out: Out<Context>, parameters: Opaque, count: c_int, flags: c_uint, device: Device) => context::create_3;
    fn cuCtxCreate_v4 = "cuCtxCreate" 12050 Legacy
        (out: Out<Context>, parameters: Opaque, flags: c_uint, device: Device) => context::create_4;
    fn cuCtxDestroy_v2 = "cuCtxDestroy" 4000 Legacy (context: Context) => context::destroy;

    // Code: what functions are called, and when their handles may be used again for others.
    fn cuModuleGetFunction = "cuModuleGetFunction" 2000 Legacy
        (out: Out<Function>, module: Other, name: Text) => code::named;
    fn cuLibraryGetKernel = "cuLibraryGetKernel" 12000 Legacy
        (out: Out<Function>, library: Other, name: Text) => code::named;
    fn cuKernelGetFunction = "cuKernelGetFunction" 12000 Legacy
        (out: Out<Function>, kernel: Function) => code::also;
    fn cuModuleUnload = "cuModuleUnload" 2000 Legacy (module: Other) => code::unload;
    fn cuLibraryUnload = "cuLibraryUnload" 12000 Legacy (library: Other) => code::unload;

    // Capture: launches that are not executed, and the time in which nothing may be asked of the driver.
    fn cuStreamBeginCapture_v2 = "cuStreamBeginCapture" 10010 Legacy
        (stream: Stream, mode: c_int) => capture::begin;
    fn cuStreamBeginCapture_v2_ptsz = "cuStreamBeginCapture" 10010 PerThread
        (stream: Stream, mode: c_int) => capture::begin;
    fn cuStreamBeginCaptureToGraph = "cuStreamBeginCaptureToGraph" 12030 Legacy
        (stream: Stream, graph: Graph, dependencies: Opaque, edges: Opaque, count: usize, mode: c_int)
        => capture::begin_to_graph;
    fn cuStreamBeginCaptureToGraph_ptsz = "cuStreamBeginCaptureToGraph" 12030 PerThread
        (stream: Stream, graph: Graph, dependencies: Opaque, edges: Opaque, count: usize, mode: c_int)
        => capture::begin_to_graph;
    fn cuStreamEndCapture = "cuStreamEndCapture" 10000 Legacy (stream: Stream, graph: Out<Graph>) => capture::end;
    fn cuStreamEndCapture_ptsz = "cuStreamEndCapture" 10000 PerThread
        (stream: Stream, graph: Out<Graph>) => capture::end;
}
Nvml {
    fn nvmlDeviceGetMemoryInfo = "" 0 Legacy (device: usize, memory: Out<NvmlMemory>) => query::nvml;
    fn nvmlDeviceGetMemoryInfo_v2 = "" 0 Legacy (device: usize, memory: Out<NvmlMemory2>) => query::nvml_2;
}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_name_a_version_and_a_default_stream_mean_one_function() {
        for (index, row) in TABLE.iter().enumerate() {
            let twins = TABLE.iter().filter(|other| {
                (other.library, other.base, other.since, other.default)
                    == (row.library, row.base, row.since, row.default)
            });
            assert!(row.library == Library::Nvml || twins.count() == 1, "{}", row.name);
            let suffixed = row.name.ends_with("_ptsz") || row.name.ends_with("_ptds");
            assert_eq!(suffixed, row.default == PerThread, "{}", row.name);
            assert!(row.name.starts_with(row.base));
            assert!(index < 256, "hooks are reported in 256 bits");
        }
    }
}
