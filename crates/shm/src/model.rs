//! What two sides do with a page at the same time, in every order that the memory model allows: `cargo xtask loom`.

use crate::atomic::Ordering;
use crate::{ControlPage, GATE_STEP, NO_LIMIT, Note, NotesPage, Tenant, TenantPage, wait};
use loom::sync::Arc;
use loom::thread::spawn;
use std::time::Duration;

/// Runs one side in a thread of its own and the other here, in every order.
fn check<T: Default + Send + Sync + 'static>(one: fn(&T), other: fn(&T)) {
    check_after(|_| {}, one, other);
}

/// The same, on a page that was written before. Each side is once the one that runs first: loom tries other orders from
/// there, and misses some where a side reads a word before it writes it.
fn check_after<T: Default + Send + Sync + 'static>(before: fn(&T), one: fn(&T), other: fn(&T)) {
    for [first, second] in [[one, other], [other, one]] {
        loom::model(move || {
            let page = Arc::new(T::default());
            before(&page);
            let thread = spawn({
                let page = page.clone();
                move || second(&page)
            });
            first(&page);
            thread.join().unwrap();
        });
    }
}

fn identity(tenant: Tenant) -> (u32, u32, u64, u32) {
    (tenant.pid, tenant.slot, tenant.generation, tenant.tenant)
}

#[test]
fn a_slot_that_changes_hands_is_empty_or_of_its_new_process() {
    check_after(
        |page: &TenantPage| {
            page.occupy(6, 3, 10, 4);
            page.used_bytes.store(1, Ordering::Relaxed);
            page.clear();
        },
        |page| page.occupy(7, 3, 11, 5),
        |page| assert!(page.read().is_none_or(|tenant| identity(tenant) == (7, 3, 11, 5) && tenant.used_bytes == 0)),
    );
}

#[test]
fn a_control_page_that_is_seen_is_seen_whole() {
    check(
        |page: &ControlPage| page.open_for(4, 9),
        |page| {
            if let Some(control) = page.read() {
                let limits = (control.allowed_ns, control.memory_limit, control.limit_permille);
                assert_eq!((control.generation, control.heartbeat_ns, control.held), (4, 9, false));
                assert_eq!(limits, (NO_LIMIT, NO_LIMIT, 1000));
            }
        },
    );
}

/// A process that waits for its quota looks at the gate, and is woken by it.
#[test]
fn whoever_sees_the_gate_move_sees_what_moved_before_it() {
    check_after(
        |page: &ControlPage| page.open_for(4, 9),
        |page| {
            page.allowed_ns.store(100, Ordering::Relaxed);
            page.set_gate(false);
        },
        |page| {
            let control = page.read().unwrap();
            assert!(control.gate == GATE_STEP || control.allowed_ns == 100);
        },
    );
}

#[test]
fn a_gate_that_opens_is_never_slept_over() {
    check_after(
        |page: &ControlPage| {
            page.open_for(4, 9);
            page.set_gate(true);
        },
        |page| page.set_gate(false),
        |page| {
            loop {
                let control = page.read().unwrap();
                if !control.held {
                    return;
                }
                wait(&page.gate, control.gate, Duration::MAX);
            }
        },
    );
}

const FIRST: Note = Note { key: 1 << 20, duration_ns: 10, gap_ns: 1 };
const NEXT: Note = Note { key: 1 << 20, duration_ns: 20, gap_ns: 2 };

#[test]
fn a_new_note_is_found_whole_or_not_at_all() {
    check(|page: &NotesPage| page.put(FIRST), |page| assert!(page.find(FIRST.key).is_none_or(|note| note == FIRST)));
}

/// One that is written again may be torn, which is a wrong estimate, but it is nobody else's.
#[test]
fn a_note_that_changes_is_the_one_that_was_asked_for() {
    check_after(
        |page: &NotesPage| page.put(FIRST),
        |page| page.put(NEXT),
        |page| {
            if let Some(note) = page.find(FIRST.key) {
                assert_eq!(note.key, FIRST.key);
                assert!([10, 20].contains(&note.duration_ns) && [1, 2].contains(&note.gap_ns));
            }
        },
    );
}

/// Threads of one process may write at once.
#[test]
fn two_that_write_the_same_note_leave_one_of_each_word() {
    check_after(
        |page: &NotesPage| page.put(FIRST),
        |page| page.put(NEXT),
        |page| {
            page.put(FIRST);
            let notes = page.read();
            assert!(
                notes.iter().all(|note| note.key == FIRST.key && [10, 20].contains(&note.duration_ns)),
                "{notes:?}"
            );
        },
    );
}
