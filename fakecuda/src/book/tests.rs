//! The rule of time, in virtual time.

use super::*;

const MS: u64 = 1_000_000;

fn book(processes: u32) -> Book {
    let mut book = Book::new(0);
    for pid in 1..=processes {
        book.occupy(pid, 7).unwrap();
    }
    book
}

fn given(book: &Book) -> Vec<u64> {
    book.occupied().map(|(_, slot)| slot.given_ns).collect()
}

#[test]
fn a_process_alone_gets_everything() {
    let mut book = book(2);
    book.slots[0].submitted_ns = 50 * MS;
    book.advance(30 * MS, |_| {});
    assert_eq!(given(&book), [30 * MS, 0]);
    book.advance(100 * MS, |_| {});
    assert_eq!(given(&book), [50 * MS, 0]);
    assert_eq!(book.busy_ns, 50 * MS);
}

#[test]
fn busy_processes_share_equally() {
    let mut book = book(3);
    for slot in 0..3 {
        book.slots[slot].submitted_ns = 1000 * MS;
    }
    book.advance(300 * SLICE_NS, |_| {});
    assert_eq!(given(&book), [100 * SLICE_NS; 3]);
}

#[test]
fn shares_follow_slices() {
    let mut book = book(2);
    book.slots[1].slice_ns = SLICE_NS / 4;
    for slot in 0..2 {
        book.slots[slot].submitted_ns = 10_000 * MS;
    }
    book.advance(100 * SLICE_NS, |_| {});
    assert_eq!(given(&book), [80 * SLICE_NS, 20 * SLICE_NS]);
}

#[test]
fn an_empty_queue_passes_its_turn_on() {
    let mut book = book(2);
    book.slots[0].submitted_ns = 100 * MS;
    book.slots[1].submitted_ns = MS;
    book.advance(10 * MS, |_| {});
    assert_eq!(given(&book), [9 * MS, MS]);
}

#[test]
fn how_often_one_looks_changes_nothing() {
    let mut seldom = book(3);
    let mut often = book(3);
    for book in [&mut seldom, &mut often] {
        book.slots[0].submitted_ns = 40 * MS;
        book.slots[1].submitted_ns = 7 * MS;
        book.slots[2].submitted_ns = 23 * MS;
        book.slots[2].slice_ns = 300_000;
    }
    let (mut first, mut second) = (Vec::new(), Vec::new());
    seldom.advance(80 * MS, |turn| first.push(turn));
    for now in 1..=8000 {
        often.advance(now * 10_000, |turn| second.push(turn));
    }
    assert_eq!(seldom.slots, often.slots);
    assert_eq!(first, second);
}

#[test]
fn predictions_come_true() {
    let mut book = book(3);
    for slot in 0..3 {
        book.slots[slot].submitted_ns = 9 * MS;
    }
    for position in [1, MS, 5 * MS, 9 * MS] {
        let predicted = book.predict(1, position).unwrap();
        let mut before = book.clone();
        before.advance(predicted - 1, |_| {});
        assert!(before.slots[1].given_ns < position);
        before.advance(predicted, |_| {});
        assert_eq!(before.slots[1].given_ns, position);
    }
    assert_eq!(book.predict(1, 10 * MS), None, "that was never submitted");
}

#[test]
fn who_is_held_gets_nothing() {
    let mut book = book(2);
    book.slots[0].submitted_ns = 10 * MS;
    book.slots[0].held = 1;
    book.advance(5 * MS, |_| {});
    assert_eq!(given(&book), [0, 0]);
    assert_eq!(book.predict(0, MS), None);
    book.slots[0].held = 0;
    book.advance(8 * MS, |_| {});
    assert_eq!(given(&book), [3 * MS, 0]);
}

#[test]
fn preemption_ends_a_turn() {
    let mut book = book(2);
    book.slots[0].submitted_ns = 10 * MS;
    book.slots[1].submitted_ns = 10 * MS;
    book.advance(MS, |_| {});
    assert_eq!(given(&book), [0, MS], "the first turn is the next slot's");
    book.preempt(1);
    book.advance(2 * MS, |_| {});
    assert_eq!(given(&book), [MS, MS]);
}

#[test]
fn slots_are_used_again() {
    let mut book = book(SLOTS as u32);
    assert_eq!(book.occupy(9999, 1), None);
    book.slots[5].used_bytes = 77;
    assert_eq!(book.vacate(5).used_bytes, 77);
    assert_eq!(book.used_bytes(), 0);
    assert_eq!(book.occupy(9999, 1), Some(5));
    for slot in 0..SLOTS {
        book.vacate(slot);
    }
    assert_eq!(book.high, 0);
}
