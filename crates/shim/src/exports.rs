//! The functions that programs call in the driver's place.
//!
//! Each gives its operation the arguments and the driver to call; [`boundary`](crate::boundary) makes sure that the driver
//! is called at most once, and also when the operation fails.

use crate::boundary::{Driver, enter};
use crate::entries::entry_points;
use crate::ops::{capture, code, context, graph, launch, memory, query, sync};
use crate::table::{COUNT, Entry, Export, HOOKS};
use crate::types::{
    Allocation, AllocationProperties, Array, Array3dDescriptor, ArrayDescriptor, Context, CuResult, Device,
    DevicePointer, Event, Function, Graph, GraphExec, IpcHandle, LaunchConfig, NvmlMemory, NvmlMemory2, Opaque, Other,
    Out, Stream, Text,
};
use crate::{fast_path, resolve};
use std::ffi::{c_int, c_uint, c_ulonglong};
use std::sync::atomic::Ordering;

macro_rules! exports {
    ($($library:ident {$(
        fn $name:ident = $base:literal $since:literal $default:ident ($($argument:ident: $type:ty),* $(,)?) => $op:path
            $(, unless $passes:path, $where:ident)?;
    )*})*) => {
        /// Our functions, in the order of the table.
        pub(crate) static OURS: [Export; COUNT] = [$($(Export(functions::$name as *const ()),)*)*];

        #[allow(non_snake_case, reason = "the driver's names")]
        mod functions {
            use super::*;
            $($(
                /// The driver's function of this name, under the tenant's share.
                #[allow(improper_ctypes_definitions, clippy::too_many_arguments, reason = "the driver's signature")]
                #[cfg_attr(not(test), unsafe(no_mangle))]
                pub(crate) extern "C" fn $name($($argument: $type),*) -> CuResult {
                    let real = HOOKS.real[Entry::$name as usize].load(Ordering::Acquire);
                    let passes = !real.is_null() && (false $(|| $passes($where))?);
                    // One call for both, which so is a jump that leaves the program's arguments where they are.
                    call::$name(if passes { real } else { tracked::$name as *mut () }, $($argument),*)
                }
            )*)*
        }

        /// What a tracked call does.
        #[allow(non_snake_case, reason = "the driver's names")]
        mod tracked {
            use super::*;
            $($(
                $(
                    // Apart from the few instructions of an untracked call.
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

        /// Calls by address: the driver's own function, or the tracked one.
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

entry_points!(exports);

/// `cuGetProcAddress` as of CUDA 11.3.
fn get_proc_address(
    driver: &Driver<'_>,
    symbol: Text,
    function: Out<*mut ()>,
    version: c_int,
    flags: c_ulonglong,
) -> CuResult {
    resolve::get_proc_address(driver, &OURS, symbol, function, version, flags)
}

/// `cuGetProcAddress` as of CUDA 12.
fn get_proc_address_2(
    driver: &Driver<'_>,
    symbol: Text,
    function: Out<*mut ()>,
    version: c_int,
    flags: c_ulonglong,
    _: Opaque,
) -> CuResult {
    resolve::get_proc_address(driver, &OURS, symbol, function, version, flags)
}
