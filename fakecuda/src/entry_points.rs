//! The one table of the driver's functions. From each row come the exports and the answers of `cuGetProcAddress`, so that
//! the two cannot drift.
//!
//! A row names an operation, its arguments, and the functions that it is behind, each with the CUDA version that first had
//! it. A function whose name ends in `_ptsz` or `_ptds` takes handle zero for the thread's own default stream.

use crate::array::{Descriptor, Descriptor3d};
use crate::boundary::{In, Out, Text, answer};
use crate::driver::Handle;
use crate::graph::{HostNodeParameters, InstantiateParameters, KernelNodeParameters};
use crate::green::Resource;
use crate::ipc::MemoryHandle;
use crate::launch::LaunchConfig;
use crate::pool::PoolProperties;
use crate::stream::with_own_default;
use crate::virtual_memory::{Access, Properties};

/// A function that callers can ask for.
pub(crate) struct Entry {
    /// The name it is exported by.
    pub(crate) name: &'static str,
    /// The first CUDA version that had it.
    pub(crate) since: u32,
    /// Where it is.
    pub(crate) address: *const (),
}

// SAFETY: the pointer is the address of a function, which every thread may call.
unsafe impl Sync for Entry {}

const fn is_for_own_stream(name: &str) -> bool {
    let name = name.as_bytes();
    let Some((_, [b'_', b'p', b't', b's', b'z'] | [b'_', b'p', b't', b'd', b's'])) = name.split_last_chunk::<5>()
    else {
        return false;
    };
    true
}

macro_rules! export {
    ($module:ident $operation:ident ($($argument:ident: $type:ty),*) $name:ident) => {
        #[doc = concat!("`", stringify!($name), "` of the driver's API.")]
        #[unsafe(no_mangle)]
        pub(crate) extern "C" fn $name($($argument: $type),*) -> i32 {
            let operation = || crate::$module::$operation($($argument),*);
            if const { is_for_own_stream(stringify!($name)) } {
                answer(|| with_own_default(operation))
            } else {
                answer(operation)
            }
        }
    };
}

macro_rules! entry_points {
    ($($module:ident::$operation:ident $arguments:tt = $($name:ident $since:literal),+;)*) => {
        $($(export! { $module $operation $arguments $name })+)*

        /// Every function.
        pub(crate) static TABLE: &[Entry] = &[
            $($(Entry { name: stringify!($name), since: $since, address: $name as *const () },)+)*
        ];
    };
}

entry_points! {
    // The driver and its devices
    device::cuInit(flags: u32) = cuInit 2000;
    device::cuDriverGetVersion(out: Out<i32>) = cuDriverGetVersion 2020;
    procaddress::cuGetProcAddress(symbol: Text, out: Out<usize>, version: i32, flags: u64) = cuGetProcAddress 11030;
    procaddress::cuGetProcAddress_v2(symbol: Text, out: Out<usize>, version: i32, flags: u64, status: Out<u32>) = cuGetProcAddress_v2 12000;
    device::cuGetErrorName(error: i32, out: Out<usize>) = cuGetErrorName 6000;
    device::cuGetErrorString(error: i32, out: Out<usize>) = cuGetErrorString 6000;
    device::cuGetExportTable(out: Out<usize>, identity: In<[u8; 16]>) = cuGetExportTable 3000;
    device::cuDeviceGet(out: Out<i32>, ordinal: i32) = cuDeviceGet 2000;
    device::cuDeviceGetCount(out: Out<i32>) = cuDeviceGetCount 2000;
    device::cuDeviceGetName(out: Out<u8>, room: i32, device: i32) = cuDeviceGetName 2000;
    device::cuDeviceGetUuid(out: Out<[u8; 16]>, device: i32) = cuDeviceGetUuid 9020, cuDeviceGetUuid_v2 11040;
    device::cuDeviceTotalMem(out: Out<usize>, device: i32) = cuDeviceTotalMem_v2 3020;
    device::cuDeviceGetAttribute(out: Out<i32>, attribute: i32, device: i32) = cuDeviceGetAttribute 2000;
    device::cuDeviceComputeCapability(major: Out<i32>, minor: Out<i32>, device: i32) = cuDeviceComputeCapability 2000;
    device::cuDeviceGetPCIBusId(out: Out<u8>, room: i32, device: i32) = cuDeviceGetPCIBusId 4010;
    device::cuDeviceGetByPCIBusId(out: Out<i32>, name: Text) = cuDeviceGetByPCIBusId 4010;
    device::cuDeviceCanAccessPeer(out: Out<i32>, device: i32, peer: i32) = cuDeviceCanAccessPeer 4000;
    device::cuDeviceGetDefaultMemPool(out: Out<usize>, device: i32) = cuDeviceGetDefaultMemPool 11020;
    pool::cuDeviceGetMemPool(out: Out<Handle>, device: i32) = cuDeviceGetMemPool 11020;
    pool::cuDeviceSetMemPool(device: i32, pool: Handle) = cuDeviceSetMemPool 11020;

    // Contexts
    context::cuDevicePrimaryCtxRetain(out: Out<Handle>, device: i32) = cuDevicePrimaryCtxRetain 7000;
    context::cuDevicePrimaryCtxRelease(device: i32) = cuDevicePrimaryCtxRelease 7000, cuDevicePrimaryCtxRelease_v2 11000;
    context::cuDevicePrimaryCtxReset(device: i32) = cuDevicePrimaryCtxReset 7000, cuDevicePrimaryCtxReset_v2 11000;
    context::cuDevicePrimaryCtxSetFlags(device: i32, flags: u32) = cuDevicePrimaryCtxSetFlags 7000, cuDevicePrimaryCtxSetFlags_v2 11000;
    context::cuDevicePrimaryCtxGetState(device: i32, flags: Out<u32>, active: Out<i32>) = cuDevicePrimaryCtxGetState 7000;
    context::cuCtxCreate(out: Out<Handle>, flags: u32, device: i32) = cuCtxCreate_v2 3020;
    context::cuCtxCreate_v3(out: Out<Handle>, affinity: In<u64>, count: i32, flags: u32, device: i32) = cuCtxCreate_v3 11040;
    context::cuCtxCreate_v4(out: Out<Handle>, parameters: In<u64>, flags: u32, device: i32) = cuCtxCreate_v4 12050;
    context::cuCtxDestroy(context: Handle) = cuCtxDestroy 2000, cuCtxDestroy_v2 4000;
    context::cuCtxPushCurrent(context: Handle) = cuCtxPushCurrent 2000, cuCtxPushCurrent_v2 4000;
    context::cuCtxPopCurrent(out: Out<Handle>) = cuCtxPopCurrent 2000, cuCtxPopCurrent_v2 4000;
    context::cuCtxSetCurrent(context: Handle) = cuCtxSetCurrent 4000;
    context::cuCtxGetCurrent(out: Out<Handle>) = cuCtxGetCurrent 4000;
    context::cuCtxGetDevice(out: Out<i32>) = cuCtxGetDevice 2000;
    context::cuCtxGetDevice_v2(out: Out<i32>, context: Handle) = cuCtxGetDevice_v2 13000;
    context::cuCtxGetFlags(out: Out<u32>) = cuCtxGetFlags 7000;
    context::cuCtxSetFlags(flags: u32) = cuCtxSetFlags 12010;
    context::cuCtxGetId(context: Handle, out: Out<u64>) = cuCtxGetId 12000;
    context::cuCtxGetApiVersion(context: Handle, out: Out<u32>) = cuCtxGetApiVersion 3020;
    context::cuCtxGetStreamPriorityRange(least: Out<i32>, greatest: Out<i32>) = cuCtxGetStreamPriorityRange 5050;
    context::cuCtxGetLimit(out: Out<usize>, limit: u32) = cuCtxGetLimit 3010;
    context::cuCtxSetLimit(limit: u32, value: usize) = cuCtxSetLimit 3010;
    context::cuCtxGetCacheConfig(out: Out<u32>) = cuCtxGetCacheConfig 3020;
    context::cuCtxSetCacheConfig(config: u32) = cuCtxSetCacheConfig 3020;
    context::cuCtxEnablePeerAccess(peer: Handle, flags: u32) = cuCtxEnablePeerAccess 4000;
    context::cuCtxDisablePeerAccess(peer: Handle) = cuCtxDisablePeerAccess 4000;
    context::cuCtxSynchronize() = cuCtxSynchronize 2000;
    context::cuCtxSynchronize_v2(context: Handle) = cuCtxSynchronize_v2 13000;

    // Modules, libraries, functions and kernels
    module::cuModuleLoad(out: Out<Handle>, path: Text) = cuModuleLoad 2000;
    module::cuModuleLoadData(out: Out<Handle>, image: In<u8>) = cuModuleLoadData 2000;
    module::cuModuleLoadDataEx(out: Out<Handle>, image: In<u8>, count: u32, options: In<u32>, values: In<usize>) = cuModuleLoadDataEx 2010;
    module::cuModuleLoadFatBinary(out: Out<Handle>, image: In<u8>) = cuModuleLoadFatBinary 2000;
    module::cuModuleUnload(module: Handle) = cuModuleUnload 2000;
    module::cuModuleGetFunction(out: Out<Handle>, module: Handle, name: Text) = cuModuleGetFunction 2000;
    module::cuModuleGetGlobal(address: Out<u64>, bytes: Out<usize>, module: Handle, name: Text) = cuModuleGetGlobal_v2 3020;
    module::cuModuleGetLoadingMode(out: Out<u32>) = cuModuleGetLoadingMode 11070;
    module::cuLibraryLoadData(out: Out<Handle>, image: In<u8>, options: In<u32>, values: In<usize>, count: u32, library_options: In<u32>, library_values: In<usize>, library_count: u32) = cuLibraryLoadData 12000;
    module::cuLibraryLoadFromFile(out: Out<Handle>, path: Text, options: In<u32>, values: In<usize>, count: u32, library_options: In<u32>, library_values: In<usize>, library_count: u32) = cuLibraryLoadFromFile 12000;
    module::cuLibraryUnload(library: Handle) = cuLibraryUnload 12000;
    module::cuLibraryGetKernel(out: Out<Handle>, library: Handle, name: Text) = cuLibraryGetKernel 12000;
    module::cuLibraryGetModule(out: Out<Handle>, library: Handle) = cuLibraryGetModule 12000;
    module::cuLibraryGetGlobal(address: Out<u64>, bytes: Out<usize>, library: Handle, name: Text) = cuLibraryGetGlobal 12000;
    module::cuKernelGetFunction(out: Out<Handle>, kernel: Handle) = cuKernelGetFunction 12000;
    module::cuKernelGetLibrary(out: Out<Handle>, kernel: Handle) = cuKernelGetLibrary 12050;
    module::cuKernelGetName(out: Out<usize>, kernel: Handle) = cuKernelGetName 12030;
    module::cuKernelGetAttribute(out: Out<i32>, attribute: u32, kernel: Handle, device: i32) = cuKernelGetAttribute 12000;
    module::cuKernelSetAttribute(attribute: u32, value: i32, kernel: Handle, device: i32) = cuKernelSetAttribute 12000;
    module::cuFuncGetName(out: Out<usize>, function: Handle) = cuFuncGetName 12030;
    module::cuFuncGetModule(out: Out<Handle>, function: Handle) = cuFuncGetModule 11000;
    module::cuFuncGetAttribute(out: Out<i32>, attribute: u32, function: Handle) = cuFuncGetAttribute 2020;
    module::cuFuncSetAttribute(function: Handle, attribute: u32, value: i32) = cuFuncSetAttribute 9000;
    module::cuFuncSetCacheConfig(function: Handle, config: u32) = cuFuncSetCacheConfig 3000;
    module::cuFuncIsLoaded(out: Out<u32>, function: Handle) = cuFuncIsLoaded 12040;
    module::cuFuncLoad(function: Handle) = cuFuncLoad 12040;
    module::cuOccupancyMaxActiveBlocksPerMultiprocessor(out: Out<i32>, function: Handle, threads: i32, shared: usize) = cuOccupancyMaxActiveBlocksPerMultiprocessor 6050;
    module::cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(out: Out<i32>, function: Handle, threads: i32, shared: usize, flags: u32) = cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags 7000;
    launch::cuOccupancyMaxActiveClusters(out: Out<i32>, function: Handle, config: In<LaunchConfig>) = cuOccupancyMaxActiveClusters 11070;

    // Streams
    stream::cuStreamCreate(out: Out<Handle>, flags: u32) = cuStreamCreate 2000;
    stream::cuStreamCreateWithPriority(out: Out<Handle>, flags: u32, priority: i32) = cuStreamCreateWithPriority 5050;
    stream::cuStreamDestroy(stream: Handle) = cuStreamDestroy 2000, cuStreamDestroy_v2 4000;
    wait::cuStreamSynchronize(stream: Handle) = cuStreamSynchronize 2000, cuStreamSynchronize_ptsz 7000;
    wait::cuStreamQuery(stream: Handle) = cuStreamQuery 2000, cuStreamQuery_ptsz 7000;
    wait::cuStreamWaitEvent(stream: Handle, event: Handle, flags: u32) = cuStreamWaitEvent 3020, cuStreamWaitEvent_ptsz 7000;
    green::cuDeviceGetDevResource(device: i32, out: Out<Resource>, kind: u32) = cuDeviceGetDevResource 12040;
    green::cuDevSmResourceSplitByCount(some: Out<Resource>, groups: Out<u32>, all: In<Resource>, rest: Out<Resource>, flags: u32, least: u32)
        = cuDevSmResourceSplitByCount 12040;
    green::cuDevResourceGenerateDesc(out: Out<Handle>, resources: In<Resource>, count: u32) = cuDevResourceGenerateDesc 12040;
    green::cuGreenCtxCreate(out: Out<Handle>, description: Handle, device: i32, flags: u32) = cuGreenCtxCreate 12040;
    green::cuGreenCtxStreamCreate(out: Out<Handle>, green: Handle, flags: u32, priority: i32) = cuGreenCtxStreamCreate 12050;
    green::cuCtxFromGreenCtx(out: Out<Handle>, green: Handle) = cuCtxFromGreenCtx 12040;
    stream::cuStreamGetPriority(stream: Handle, out: Out<i32>) = cuStreamGetPriority 5050, cuStreamGetPriority_ptsz 7000;
    stream::cuStreamGetFlags(stream: Handle, out: Out<u32>) = cuStreamGetFlags 5050, cuStreamGetFlags_ptsz 7000;
    stream::cuStreamGetId(stream: Handle, out: Out<u64>) = cuStreamGetId 12000, cuStreamGetId_ptsz 12000;
    stream::cuStreamGetCtx(stream: Handle, out: Out<Handle>) = cuStreamGetCtx 9020, cuStreamGetCtx_ptsz 9020;
    stream::cuStreamGetDevice(stream: Handle, out: Out<i32>) = cuStreamGetDevice 12080, cuStreamGetDevice_ptsz 12080;
    stream::cuStreamAttachMemAsync(stream: Handle, address: u64, bytes: usize, flags: u32) = cuStreamAttachMemAsync 6000, cuStreamAttachMemAsync_ptsz 7000;
    stream::cuStreamSetAttribute(stream: Handle, attribute: u32, value: In<u64>) = cuStreamSetAttribute 11000, cuStreamSetAttribute_ptsz 11000;
    capture::cuStreamBeginCapture_v2(stream: Handle, mode: u32) = cuStreamBeginCapture_v2 10010, cuStreamBeginCapture_v2_ptsz 10010;
    capture::cuStreamBeginCaptureToGraph(stream: Handle, graph: Handle, dependencies: In<Handle>, edges: In<u64>, count: usize, mode: u32) = cuStreamBeginCaptureToGraph 12030, cuStreamBeginCaptureToGraph_ptsz 12030;
    capture::cuStreamEndCapture(stream: Handle, out: Out<Handle>) = cuStreamEndCapture 10000, cuStreamEndCapture_ptsz 10000;
    capture::cuStreamIsCapturing(stream: Handle, out: Out<u32>) = cuStreamIsCapturing 10000, cuStreamIsCapturing_ptsz 10000;
    capture::cuStreamGetCaptureInfo(stream: Handle, status: Out<u32>, identity: Out<u64>) = cuStreamGetCaptureInfo 10010, cuStreamGetCaptureInfo_ptsz 10010;
    capture::cuStreamGetCaptureInfo_v2(stream: Handle, status: Out<u32>, identity: Out<u64>, graph: Out<Handle>, dependencies: Out<usize>, count: Out<usize>) = cuStreamGetCaptureInfo_v2 11030, cuStreamGetCaptureInfo_v2_ptsz 11030;
    capture::cuStreamGetCaptureInfo_v3(stream: Handle, status: Out<u32>, identity: Out<u64>, graph: Out<Handle>, dependencies: Out<usize>, edges: Out<usize>, count: Out<usize>) = cuStreamGetCaptureInfo_v3 12030, cuStreamGetCaptureInfo_v3_ptsz 12030;
    capture::cuStreamUpdateCaptureDependencies(stream: Handle, nodes: In<Handle>, count: usize, flags: u32) = cuStreamUpdateCaptureDependencies 11030, cuStreamUpdateCaptureDependencies_ptsz 11030;
    capture::cuThreadExchangeStreamCaptureMode(mode: Out<u32>) = cuThreadExchangeStreamCaptureMode 10010;

    // Events
    event::cuEventCreate(out: Out<Handle>, flags: u32) = cuEventCreate 2000;
    event::cuEventDestroy(event: Handle) = cuEventDestroy 2000, cuEventDestroy_v2 4000;
    event::cuEventRecord(event: Handle, stream: Handle) = cuEventRecord 2000, cuEventRecord_ptsz 7000;
    event::cuEventRecordWithFlags(event: Handle, stream: Handle, flags: u32) = cuEventRecordWithFlags 11010, cuEventRecordWithFlags_ptsz 11010;
    event::cuEventQuery(event: Handle) = cuEventQuery 2000;
    event::cuEventSynchronize(event: Handle) = cuEventSynchronize 2000;
    event::cuEventElapsedTime(out: Out<f32>, start: Handle, end: Handle) = cuEventElapsedTime 2000, cuEventElapsedTime_v2 12080;

    // Launches
    launch::cuLaunchKernel(function: Handle, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32, shared_bytes: u32, stream: Handle, parameters: In<usize>, extra: In<usize>) = cuLaunchKernel 4000, cuLaunchKernel_ptsz 7000;
    launch::cuLaunchKernelEx(config: In<LaunchConfig>, function: Handle, parameters: In<usize>, extra: In<usize>) = cuLaunchKernelEx 11060, cuLaunchKernelEx_ptsz 11060;
    launch::cuLaunchCooperativeKernel(function: Handle, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32, shared_bytes: u32, stream: Handle, parameters: In<usize>) = cuLaunchCooperativeKernel 9000, cuLaunchCooperativeKernel_ptsz 9000;
    launch::cuLaunchHostFunc(stream: Handle, function: usize, argument: usize) = cuLaunchHostFunc 10000, cuLaunchHostFunc_ptsz 10000;

    // Graphs
    graph::cuGraphCreate(out: Out<Handle>, flags: u32) = cuGraphCreate 10000;
    graph::cuGraphClone(out: Out<Handle>, graph: Handle) = cuGraphClone 10000;
    graph::cuGraphDestroy(graph: Handle) = cuGraphDestroy 10000;
    graph::cuGraphExecDestroy(executable: Handle) = cuGraphExecDestroy 10000;
    graph::cuGraphInstantiate(out: Out<Handle>, graph: Handle, error_node: Out<Handle>, log: Out<u8>, room: usize) = cuGraphInstantiate 10000, cuGraphInstantiate_v2 11000;
    graph::cuGraphInstantiateWithFlags(out: Out<Handle>, graph: Handle, flags: u64) = cuGraphInstantiateWithFlags 11040;
    graph::cuGraphInstantiateWithParams(out: Out<Handle>, graph: Handle, parameters: Out<InstantiateParameters>) = cuGraphInstantiateWithParams 12000, cuGraphInstantiateWithParams_ptsz 12000;
    launch::cuGraphLaunch(executable: Handle, stream: Handle) = cuGraphLaunch 10000, cuGraphLaunch_ptsz 10000;
    launch::cuGraphUpload(executable: Handle, stream: Handle) = cuGraphUpload 11010, cuGraphUpload_ptsz 11010;
    graph::cuGraphExecUpdate(executable: Handle, graph: Handle, error_node: Out<Handle>, result: Out<u32>) = cuGraphExecUpdate 10020;
    graph::cuGraphExecUpdate_v2(executable: Handle, graph: Handle, result: Out<[usize; 3]>) = cuGraphExecUpdate_v2 12000;
    graph::cuGraphGetNodes(graph: Handle, nodes: Out<Handle>, count: Out<usize>) = cuGraphGetNodes 10000;
    graph::cuGraphNodeGetType(node: Handle, out: Out<u32>) = cuGraphNodeGetType 10000;
    graph::cuGraphKernelNodeGetParams(node: Handle, out: Out<KernelNodeParameters>) = cuGraphKernelNodeGetParams 10000, cuGraphKernelNodeGetParams_v2 12000;
    graph::cuGraphAddKernelNode(out: Out<Handle>, graph: Handle, dependencies: In<Handle>, count: usize, parameters: In<KernelNodeParameters>) = cuGraphAddKernelNode 10000, cuGraphAddKernelNode_v2 12000;
    graph::cuGraphAddHostNode(out: Out<Handle>, graph: Handle, dependencies: In<Handle>, count: usize, parameters: In<HostNodeParameters>) = cuGraphAddHostNode 10000;
    graph::cuGraphAddEmptyNode(out: Out<Handle>, graph: Handle, dependencies: In<Handle>, count: usize) = cuGraphAddEmptyNode 10000;
    graph::cuGraphAddChildGraphNode(out: Out<Handle>, graph: Handle, dependencies: In<Handle>, count: usize, child: Handle) = cuGraphAddChildGraphNode 10000;
    graph::cuGraphAddDependencies(graph: Handle, from: In<Handle>, to: In<Handle>, count: usize) = cuGraphAddDependencies 10000;
    graph::cuGraphAddDependencies_v2(graph: Handle, from: In<Handle>, to: In<Handle>, edges: In<u64>, count: usize) = cuGraphAddDependencies_v2 12030;

    // Memory
    memory::cuMemAlloc(out: Out<u64>, bytes: usize) = cuMemAlloc_v2 3020;
    memory::cuMemAllocPitch(out: Out<u64>, pitch: Out<usize>, width: usize, height: usize, element: u32) = cuMemAllocPitch_v2 3020;
    memory::cuMemAllocManaged(out: Out<u64>, bytes: usize, flags: u32) = cuMemAllocManaged 6000;
    memory::cuMemFree(address: u64) = cuMemFree_v2 3020;
    memory::cuMemGetInfo(free: Out<usize>, total: Out<usize>) = cuMemGetInfo_v2 3020;
    memory::cuMemGetAddressRange(base: Out<u64>, bytes: Out<usize>, address: u64) = cuMemGetAddressRange_v2 3020;
    memory::cuMemPrefetchAsync(address: u64, bytes: usize, device: i32, stream: Handle) = cuMemPrefetchAsync 8000, cuMemPrefetchAsync_ptsz 8000;
    memory::cuMemPrefetchAsync_v2(address: u64, bytes: usize, location: u64, flags: u32, stream: Handle) = cuMemPrefetchAsync_v2 12020, cuMemPrefetchAsync_v2_ptsz 12020;
    memory::cuMemAdvise(address: u64, bytes: usize, advice: u32, device: i32) = cuMemAdvise 8000;
    memory::cuPointerGetAttribute(out: Out<u64>, attribute: u32, address: u64) = cuPointerGetAttribute 4000;
    memory::cuPointerGetAttributes(count: u32, attributes: In<u32>, values: In<Out<u64>>, address: u64) = cuPointerGetAttributes 7000;
    memory::cuPointerSetAttribute(value: In<u64>, attribute: u32, address: u64) = cuPointerSetAttribute 6000;
    host_memory::cuMemHostAlloc(out: Out<u64>, bytes: usize, flags: u32) = cuMemHostAlloc 2020;
    host_memory::cuMemAllocHost(out: Out<u64>, bytes: usize) = cuMemAllocHost_v2 3020;
    host_memory::cuMemFreeHost(address: u64) = cuMemFreeHost 2000;
    host_memory::cuMemHostRegister(address: u64, bytes: usize, flags: u32) = cuMemHostRegister_v2 6050;
    host_memory::cuMemHostUnregister(address: u64) = cuMemHostUnregister 4000;
    host_memory::cuMemHostGetDevicePointer(out: Out<u64>, address: u64, flags: u32) = cuMemHostGetDevicePointer_v2 3020;
    host_memory::cuMemHostGetFlags(out: Out<u32>, address: u64) = cuMemHostGetFlags 2030;
    ipc::cuIpcGetMemHandle(out: Out<MemoryHandle>, address: u64) = cuIpcGetMemHandle 4010;
    ipc::cuIpcOpenMemHandle(out: Out<u64>, handle: MemoryHandle, flags: u32) = cuIpcOpenMemHandle 4010, cuIpcOpenMemHandle_v2 11000;
    ipc::cuIpcCloseMemHandle(address: u64) = cuIpcCloseMemHandle 4010;
    array::cuArrayCreate(out: Out<Handle>, shape: In<Descriptor>) = cuArrayCreate_v2 3020;
    array::cuArray3DCreate(out: Out<Handle>, shape: In<Descriptor3d>) = cuArray3DCreate_v2 3020;
    array::cuArrayDestroy(array: Handle) = cuArrayDestroy 2000;
    array::cuMipmappedArrayCreate(out: Out<Handle>, shape: In<Descriptor3d>, levels: u32) = cuMipmappedArrayCreate 5000;
    array::cuMipmappedArrayDestroy(array: Handle) = cuMipmappedArrayDestroy 5000;

    // Pools and virtual memory
    pool::cuMemAllocAsync(out: Out<u64>, bytes: usize, stream: Handle) = cuMemAllocAsync 11020, cuMemAllocAsync_ptsz 11020;
    pool::cuMemAllocFromPoolAsync(out: Out<u64>, bytes: usize, pool: Handle, stream: Handle) = cuMemAllocFromPoolAsync 11020, cuMemAllocFromPoolAsync_ptsz 11020;
    pool::cuMemFreeAsync(address: u64, stream: Handle) = cuMemFreeAsync 11020, cuMemFreeAsync_ptsz 11020;
    pool::cuMemPoolCreate(out: Out<Handle>, properties: In<PoolProperties>) = cuMemPoolCreate 11020;
    pool::cuMemPoolDestroy(pool: Handle) = cuMemPoolDestroy 11020;
    pool::cuMemPoolTrimTo(pool: Handle, keep: usize) = cuMemPoolTrimTo 11020;
    pool::cuMemPoolSetAttribute(pool: Handle, attribute: u32, value: In<u64>) = cuMemPoolSetAttribute 11020;
    pool::cuMemPoolGetAttribute(pool: Handle, attribute: u32, out: Out<u64>) = cuMemPoolGetAttribute 11020;
    pool::cuMemPoolSetAccess(pool: Handle, access: In<[u32; 3]>, count: usize) = cuMemPoolSetAccess 11020;
    virtual_memory::cuMemGetAllocationGranularity(out: Out<usize>, properties: In<Properties>, option: u32) = cuMemGetAllocationGranularity 10020;
    virtual_memory::cuMemCreate(out: Out<u64>, bytes: usize, properties: In<Properties>, flags: u64) = cuMemCreate 10020;
    virtual_memory::cuMemRelease(handle: u64) = cuMemRelease 10020;
    virtual_memory::cuMemRetainAllocationHandle(out: Out<u64>, address: u64) = cuMemRetainAllocationHandle 11000;
    virtual_memory::cuMemGetAllocationPropertiesFromHandle(out: Out<Properties>, handle: u64) = cuMemGetAllocationPropertiesFromHandle 10020;
    virtual_memory::cuMemAddressReserve(out: Out<u64>, bytes: usize, alignment: usize, hint: u64, flags: u64) = cuMemAddressReserve 10020;
    virtual_memory::cuMemAddressFree(address: u64, bytes: usize) = cuMemAddressFree 10020;
    virtual_memory::cuMemMap(address: u64, bytes: usize, offset: usize, handle: u64, flags: u64) = cuMemMap 10020;
    virtual_memory::cuMemUnmap(address: u64, bytes: usize) = cuMemUnmap 10020;
    virtual_memory::cuMemSetAccess(address: u64, bytes: usize, access: In<Access>, count: usize) = cuMemSetAccess 10020;
    virtual_memory::cuMemGetAccess(out: Out<u64>, location: In<[u32; 2]>, address: u64) = cuMemGetAccess 10020;
    virtual_memory::cuMemExportToShareableHandle(out: Out<u64>, handle: u64, kind: u32, flags: u64) = cuMemExportToShareableHandle 10020;

    // Copies
    copy::cuMemcpy(target: u64, source: u64, bytes: usize) = cuMemcpy 4000, cuMemcpy_ptds 7000, cuMemcpyHtoD_v2 3020, cuMemcpyHtoD_v2_ptds 7000, cuMemcpyDtoH_v2 3020, cuMemcpyDtoH_v2_ptds 7000, cuMemcpyDtoD_v2 3020, cuMemcpyDtoD_v2_ptds 7000;
    copy::cuMemcpyAsync(target: u64, source: u64, bytes: usize, stream: Handle) = cuMemcpyAsync 4000, cuMemcpyAsync_ptsz 7000, cuMemcpyHtoDAsync_v2 3020, cuMemcpyHtoDAsync_v2_ptsz 7000, cuMemcpyDtoDAsync_v2 3020, cuMemcpyDtoDAsync_v2_ptsz 7000;
    copy::cuMemcpyDtoHAsync(target: u64, source: u64, bytes: usize, stream: Handle) = cuMemcpyDtoHAsync_v2 3020, cuMemcpyDtoHAsync_v2_ptsz 7000;
    copy::cuMemcpyPeer(target: u64, to: Handle, source: u64, from: Handle, bytes: usize) = cuMemcpyPeer 4000, cuMemcpyPeer_ptds 7000;
    copy::cuMemcpyPeerAsync(target: u64, to: Handle, source: u64, from: Handle, bytes: usize, stream: Handle) = cuMemcpyPeerAsync 4000, cuMemcpyPeerAsync_ptsz 7000;
    copy::cuMemsetD8(target: u64, value: u8, count: usize) = cuMemsetD8_v2 3020, cuMemsetD8_v2_ptds 7000;
    copy::cuMemsetD16(target: u64, value: u16, count: usize) = cuMemsetD16_v2 3020, cuMemsetD16_v2_ptds 7000;
    copy::cuMemsetD32(target: u64, value: u32, count: usize) = cuMemsetD32_v2 3020, cuMemsetD32_v2_ptds 7000;
    copy::cuMemsetD8Async(target: u64, value: u8, count: usize, stream: Handle) = cuMemsetD8Async 3020, cuMemsetD8Async_ptsz 7000;
    copy::cuMemsetD16Async(target: u64, value: u16, count: usize, stream: Handle) = cuMemsetD16Async 3020, cuMemsetD16Async_ptsz 7000;
    copy::cuMemsetD32Async(target: u64, value: u32, count: usize, stream: Handle) = cuMemsetD32Async 3020, cuMemsetD32Async_ptsz 7000;
}
