//! Memory that processes of Weft share, and how it changes hands.
//!
//! A [`Segment`] is a stretch of memory without a name in the file system: one process makes it and hands the file
//! descriptor to another. What lies where in it, and whose turn it is, is agreed elsewhere.
//!
//! A [`TenantPage`] is what one process on one GPU says about itself, a [`ControlPage`] what the node's daemon says to
//! it. Both are words that are read and written whole, so that nobody ever waits for another process to look at them.
//! A [`NotesPage`] is what a program knows of its kernels from one run to the next.
//! They travel over a [`Connection`], in answer to a [`Message`].

mod atomic;
mod page;
mod notes;
mod view;
#[cfg(not(loom))]
mod map;
#[cfg(not(loom))]
mod window;
mod message;
mod socket;
mod clock;
#[cfg_attr(loom, path = "model/futex.rs")]
mod futex;
mod segment;
mod code;
#[cfg(all(test, loom))]
mod model;

pub use clock::now_ns;
pub use code::give_back;
pub use futex::{wait, wake};
#[cfg(not(loom))]
pub use map::{OwnPage, Page, SeenPage, page_in, read_only};
pub use message::{DecodeError, Message, Name, message_version};
pub use notes::{NOTES, Note, NotesPage, stable_hash};
pub use page::{
    ControlPage, GATE_HELD, GATE_STEP, MAGIC, PAGE_BYTES, SLICED_NS, SLOTS, STATE_FREE, STATE_LIVE, TenantPage, VERSION,
};
pub use segment::{Access, Segment};
pub use share_core::{Admission, BUDGET_NS, Class, NO_LIMIT, Patience, SharingMode};
pub use socket::{Connection, FileList, Listener, MAX_MESSAGE, Peer, socket_path};
pub use view::{Control, Ended, Tenant};
#[cfg(not(loom))]
pub use window::{PageWindow, Seen};
