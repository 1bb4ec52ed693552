//! Names of things. Small integers, given out by the driver, used as indices.

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);

        impl $name {
            /// The position of this thing in a table of its kind.
            pub const fn index(self) -> usize {
                self.0 as usize
            }

            /// The name of the thing at this position.
            pub const fn new(index: usize) -> Self {
                Self(index as u32)
            }
        }
    };
}

id!(
    /// A model that is served.
    ModelId
);
id!(
    /// A GPU. Lower ids are used first, so that what is idle is idle as a whole.
    GpuId
);
id!(
    /// A type of GPU: GPUs of one type run a model equally fast.
    GpuType
);
id!(
    /// A queue. Lane `m` is model `m`'s own; a policy that routes requests to GPUs opens more of them.
    LaneId
);
id!(
    /// A program that shares a GPU with others.
    TenantId
);

id!(
    /// A machine with GPUs.
    NodeId
);
id!(
    /// An instance of a service: one worker, or several that work together.
    InstanceId
);

/// A request, unique for as long as the driver lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);
