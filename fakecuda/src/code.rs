//! The driver's result codes, with their numbers, names and sentences.

/// What a driver function answers. Zero is success and never appears as an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Code(pub i32);

/// What an operation answers before it becomes a number at the boundary.
pub(crate) type Status = Result<(), Code>;

macro_rules! codes {
    ($($constant:ident $number:literal $name:literal $sentence:literal;)*) => {
        #[allow(dead_code, reason = "every code has a name, whether or not it is ever answered")]
        impl Code {
            $(#[doc = $sentence] pub(crate) const $constant: Code = Code($number);)*
        }

        /// Number, name and sentence of every code, each text ending in a zero byte for C.
        pub(crate) static CODES: &[(i32, &str, &str)] = &[
            (0, "CUDA_SUCCESS\0", "no error\0"),
            $(($number, concat!($name, "\0"), concat!($sentence, "\0")),)*
        ];
    };
}

codes! {
    INVALID_VALUE 1 "CUDA_ERROR_INVALID_VALUE" "invalid argument";
    OUT_OF_MEMORY 2 "CUDA_ERROR_OUT_OF_MEMORY" "out of memory";
    NOT_INITIALIZED 3 "CUDA_ERROR_NOT_INITIALIZED" "initialization error";
    DEINITIALIZED 4 "CUDA_ERROR_DEINITIALIZED" "driver shutting down";
    NO_DEVICE 100 "CUDA_ERROR_NO_DEVICE" "no CUDA-capable device is detected";
    INVALID_DEVICE 101 "CUDA_ERROR_INVALID_DEVICE" "invalid device ordinal";
    INVALID_IMAGE 200 "CUDA_ERROR_INVALID_IMAGE" "device kernel image is invalid";
    INVALID_CONTEXT 201 "CUDA_ERROR_INVALID_CONTEXT" "invalid device context";
    ALREADY_MAPPED 208 "CUDA_ERROR_ALREADY_MAPPED" "resource already mapped";
    FILE_NOT_FOUND 301 "CUDA_ERROR_FILE_NOT_FOUND" "file not found";
    OPERATING_SYSTEM 304 "CUDA_ERROR_OPERATING_SYSTEM" "OS call failed or operation not supported on this OS";
    INVALID_HANDLE 400 "CUDA_ERROR_INVALID_HANDLE" "invalid resource handle";
    ILLEGAL_STATE 401 "CUDA_ERROR_ILLEGAL_STATE" "the operation cannot be performed in the present state";
    NOT_FOUND 500 "CUDA_ERROR_NOT_FOUND" "named symbol not found";
    NOT_READY 600 "CUDA_ERROR_NOT_READY" "device not ready";
    LAUNCH_FAILED 719 "CUDA_ERROR_LAUNCH_FAILED" "unspecified launch failure";
    PEER_ACCESS_UNSUPPORTED 217 "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED" "peer access is not supported between these two devices";
    PRIMARY_CONTEXT_ACTIVE 708 "CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE" "cannot set while device is active in this process";
    CONTEXT_IS_DESTROYED 709 "CUDA_ERROR_CONTEXT_IS_DESTROYED" "context is destroyed";
    HOST_MEMORY_ALREADY_REGISTERED 712 "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED" "part or all of the requested memory range is already mapped";
    HOST_MEMORY_NOT_REGISTERED 713 "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED" "pointer does not correspond to a registered memory region";
    NOT_PERMITTED 800 "CUDA_ERROR_NOT_PERMITTED" "operation not permitted";
    NOT_SUPPORTED 801 "CUDA_ERROR_NOT_SUPPORTED" "operation not supported";
    STREAM_CAPTURE_UNSUPPORTED 900 "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED" "operation not permitted when stream is capturing";
    STREAM_CAPTURE_INVALIDATED 901 "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED" "operation failed due to a previous error during capture";
    STREAM_CAPTURE_MERGE 902 "CUDA_ERROR_STREAM_CAPTURE_MERGE" "operation would result in a merge of separate capture sequences";
    STREAM_CAPTURE_UNMATCHED 903 "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED" "capture was not ended in the same stream as it began";
    STREAM_CAPTURE_UNJOINED 904 "CUDA_ERROR_STREAM_CAPTURE_UNJOINED" "capturing stream has unjoined work";
    STREAM_CAPTURE_IMPLICIT 906 "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT" "operation would make the legacy stream depend on a capturing blocking stream";
    CAPTURED_EVENT 907 "CUDA_ERROR_CAPTURED_EVENT" "operation not permitted on an event last recorded in a capturing stream";
    STREAM_CAPTURE_WRONG_THREAD 908 "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD" "attempt to terminate a thread-local capture sequence from another thread";
    UNKNOWN 999 "CUDA_ERROR_UNKNOWN" "unknown error";
}
