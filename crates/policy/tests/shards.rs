//! Shards on threads: the same decisions, to the byte, however many threads there are; and packets that are none.

mod threads;

use policy::shard::{Decision, Malformed, Shard, decisions, pack_arrival, pack_done};
use policy::{Dispatcher, GpuId, GpuType, LatencyTable, Model, ModelId, Network, RequestId, Span, Time, policies};
use proptest::prelude::*;
use threads::Threads;

#[test]
fn the_number_of_threads_changes_no_decision() {
    for policy in ["weft", "deferred"] {
        let decided = |threads: usize| {
            let mut world = Threads::new(policy, 60, 90, 6, Span::from_micros(500));
            world.run(600, threads);
            (world.came(), world.decided())
        };
        let (came, alone) = decided(1);
        let [ran, refused] = alone.iter().fold([0, 0], |[a, b], (_, [ran, refused])| [a + ran, b + refused]);
        assert!(ran > came / 2 && refused * 20 < came, "{ran} of {came} ran, {refused} were refused");
        for threads in [2, 4] {
            assert_eq!(decided(threads), (came, alone.clone()), "{policy} on {threads} threads");
        }
    }
}

fn shard() -> Shard {
    let model = Model {
        objective: Span::from_millis(20),
        tables: vec![LatencyTable::line(Span::from_millis(1), Span::from_millis(4), 8)],
        expected_gap: Span::MAX,
    };
    let policy = policies::by_name("eager").expect("it is there");
    Shard::new(Dispatcher::new(vec![model; 2], &[GpuType(0); 2], Network::default(), policy))
}

#[test]
fn what_comes_together_is_decided_together_and_batches_that_are_over_come_first() {
    let (mut shard, mut packet, mut out) = (shard(), Vec::new(), Vec::new());
    for id in 0..5 {
        pack_arrival(&mut packet, RequestId(id), ModelId(id as u32 % 2), Time::from_nanos(20_000_000));
    }
    shard.on_packet(Time::ZERO, &packet, &mut out).unwrap();
    let batches: Vec<(u32, Vec<u64>)> = decisions(&out)
        .map(|decision| match decision {
            Decision::Run { gpu, requests, .. } => (gpu.0, requests.iter().map(|id| id.0).collect()),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(batches, [(0, vec![0, 2, 4]), (1, vec![1, 3])]);
    // Both GPUs are busy; what comes with the end of a batch gets its GPU.
    packet.clear();
    out.clear();
    pack_arrival(&mut packet, RequestId(9), ModelId(1), Time::from_nanos(30_000_000));
    pack_done(&mut packet, GpuId(0), 0);
    shard.on_packet(Time::from_nanos(7_000_000), &packet, &mut out).unwrap();
    assert!(matches!(decisions(&out).next(), Some(Decision::Run { gpu: GpuId(0), batch: 2, .. })));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn bytes_that_are_no_packet_change_nothing(
        good in 0..4usize,
        rest in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        let (mut shard, mut packet, mut out) = (shard(), Vec::new(), Vec::new());
        for id in 0..good {
            pack_arrival(&mut packet, RequestId(id as u64), ModelId(0), Time::from_nanos(20_000_000));
        }
        packet.extend(rest);
        if shard.on_packet(Time::ZERO, &packet, &mut out) == Err(Malformed) {
            prop_assert!(out.is_empty() && shard.dispatcher().cluster().is_idle());
        }
        // Nor does reading decisions from anything panic.
        prop_assert!(decisions(&packet).count() <= packet.len());
    }
}
