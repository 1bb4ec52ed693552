//! A tenant's class, how it shares the GPU with others, and what it may launch while they are busy: words of a page.

/// What a tenant was promised. Ordered: the more important class is the lesser.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum Class {
    /// Keeps the latency it has alone.
    Latency = 0,
    /// Gets the share that it was guaranteed.
    Standard = 1,
    /// Gets the rest.
    BestEffort = 2,
}

impl Class {
    /// The class with this number; an unknown number is [`Class::BestEffort`], which is granted the least.
    pub const fn from_word(word: u32) -> Class {
        match word {
            0 => Class::Latency,
            1 => Class::Standard,
            _ => Class::BestEffort,
        }
    }

    /// Class, then priority, as one number: less is more important.
    pub const fn rank(self, priority: u8) -> u32 {
        self as u32 * 16 + priority as u32
    }
}

/// How tenants share a GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub enum SharingMode {
    /// One after the other, in time slices.
    #[default]
    Temporal = 0,
    /// At the same time, under MPS.
    Spatial = 1,
}

impl SharingMode {
    /// The mode with this number; an unknown number is [`SharingMode::Temporal`].
    pub const fn from_word(word: u32) -> SharingMode {
        match word {
            1 => SharingMode::Spatial,
            _ => SharingMode::Temporal,
        }
    }
}

/// What a best-effort tenant may launch during a busy period of a more important one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub enum Admission {
    /// Kernels that fit the gap that is predicted between two of its kernels.
    #[default]
    GapFill = 0,
    /// Kernels that are no longer than the in-flight budget.
    ShortOnly = 1,
    /// Everything.
    Concurrent = 2,
    /// Nothing, and what was launched before is preempted.
    Exclusive = 3,
}

impl Admission {
    /// The admission with this number; an unknown number is [`Admission::GapFill`].
    pub const fn from_word(word: u32) -> Admission {
        match word {
            1 => Admission::ShortOnly,
            2 => Admission::Concurrent,
            3 => Admission::Exclusive,
            _ => Admission::GapFill,
        }
    }
}
