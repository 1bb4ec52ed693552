//! What must hold of any bytes that come over the daemon's socket or lie in a page: they are read or refused, and what
//! was read is written back to the same bytes. A broken rule is a panic.
//!
//! The fuzz targets and the ordinary test `crates/shm/tests/any_bytes.rs` share this file.

use shm::{ControlPage, Message, PAGE_BYTES, SLOTS, TenantPage, VERSION};
use std::sync::atomic::{AtomicU64, Ordering};

/// One packet.
pub fn message(data: &[u8]) {
    match Message::decode(data) {
        Ok(message) => {
            let mut buffer = vec![0; data.len()];
            let written = message.encode(&mut buffer).expect("what was read fits where it was");
            if shm::message_version(data) == Some(VERSION) {
                assert_eq!(written, data, "{message:?} does not read back");
            }
            assert!(message.encode(&mut vec![0; data.len() - 1]).is_none());
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// A page of either kind; what is missing is zero.
pub fn page(data: &[u8]) {
    let words = (0..PAGE_BYTES / 8).map(|index| {
        let mut word = [0; 8];
        for (place, byte) in word.iter_mut().zip(data.iter().skip(index * 8)) {
            *place = *byte;
        }
        AtomicU64::new(u64::from_le_bytes(word))
    });
    let page: Box<Aligned> = Box::new(Aligned(words.collect::<Vec<_>>().try_into().expect("a page of words")));
    if let Some(tenant) = page.tenant().read() {
        assert!((tenant.slot as usize) < SLOTS && tenant.priority < 10);
    }
    if let Some(control) = page.control().read() {
        assert!(control.budget_ns > 0 && control.request_permille <= 1000 && control.limit_permille <= 1000);
        assert!(control.priority < 10);
    }
    page.tenant().clear();
    assert!(page.tenant().read().is_none());
    page.tenant().occupy(1, 2, 3, 4);
    assert_eq!(page.tenant().read().map(|tenant| (tenant.used_bytes, tenant.launches)), Some((0, 0)));
    page.tenant().magic.store(0, Ordering::Relaxed);
    page.control().open_for(5, 6);
    assert_eq!(page.control().read().map(|control| (control.generation, control.held)), Some((5, false)));
}

#[repr(C, align(64))]
struct Aligned([AtomicU64; PAGE_BYTES / 8]);

impl Aligned {
    fn tenant(&self) -> &TenantPage {
        shm::page_in(&self.0).expect("large and aligned enough")
    }

    fn control(&self) -> &ControlPage {
        shm::page_in(&self.0).expect("large and aligned enough")
    }
}
