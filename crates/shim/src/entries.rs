//! Every function that is intercepted: one line each.
//!
//! A line says the name that the library exports; the name, the CUDA version and the default stream under which
//! `cuGetProcAddress` hands it out; its arguments; and the operation that does the work. After `unless` stands a test: a
//! call that passes it goes straight to the driver.
//!
//! From these lines [`table`](crate::table) makes the slots for the real functions, and [`exports`](crate::exports) makes
//! the functions that programs call. So the two agree, and what an operation needs of the table does not need the exports.

/// Calls the macro `$make` with all lines.
macro_rules! entry_points {
    ($make:ident) => {
        $make! {
            Cuda {
                // How programs find everything else.
                fn cuGetProcAddress = "cuGetProcAddress" 11030 Legacy
                    (symbol: Text, function: Out<*mut ()>, version: c_int, flags: c_ulonglong) => get_proc_address;
                fn cuGetProcAddress_v2 = "cuGetProcAddress" 12000 Legacy
                    (symbol: Text, function: Out<*mut ()>, version: c_int, flags: c_ulonglong, status: Opaque)
                    => get_proc_address_2;

                // Work: these pass the gate.
                fn cuLaunchKernel = "cuLaunchKernel" 4000 Legacy
                    (f: Function, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint, shared: c_uint,
                     stream: Stream, parameters: Opaque, extra: Opaque) => launch::kernel::<false>,
                    unless fast_path::passes::<false>, stream;
                fn cuLaunchKernel_ptsz = "cuLaunchKernel" 7000 PerThread
                    (f: Function, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint, shared: c_uint,
                     stream: Stream, parameters: Opaque, extra: Opaque) => launch::kernel::<true>,
                    unless fast_path::passes::<true>, stream;
                fn cuLaunchKernelEx = "cuLaunchKernelEx" 11060 Legacy
                    (config: Out<LaunchConfig>, f: Function, parameters: Opaque, extra: Opaque) => launch::kernel_ex::<false>,
                    unless fast_path::passes_config::<false>, config;
                fn cuLaunchKernelEx_ptsz = "cuLaunchKernelEx" 11060 PerThread
                    (config: Out<LaunchConfig>, f: Function, parameters: Opaque, extra: Opaque) => launch::kernel_ex::<true>,
                    unless fast_path::passes_config::<true>, config;
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
    };
}
pub(crate) use entry_points;
