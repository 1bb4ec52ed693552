//! The life of a deployment: what each event does in each phase, and what holds in every order of events.

use policy::deployment::{Action, Answer, Event, GRACE, Life, PATIENCE, Phase, ROOM_PATIENCE};
use policy::{Span, Time};
use proptest::prelude::*;
use std::collections::BTreeSet;

fn at(seconds: u64) -> Time {
    Time::ZERO + Span::from_secs(seconds)
}

fn slow() -> Result<(), String> {
    Err("slow".into())
}

/// What an event does: to the phase, and the actions.
fn tell(life: &mut Life, now: Time, event: Event) -> Vec<Action> {
    let mut actions = Vec::new();
    life.on_event(now, event, &mut actions);
    actions
}

/// A life after these events, all at the start.
fn after(on_trial: bool, events: &[Event]) -> Life {
    let mut life = Life::new(on_trial);
    events.iter().for_each(|event| drop(tell(&mut life, Time::ZERO, event.clone())));
    life
}

fn name(phase: &Phase) -> &'static str {
    match phase {
        Phase::Unloaded => "unloaded",
        Phase::Starting => "starting",
        Phase::Proving => "proving",
        Phase::Failed(_) => "failed",
        Phase::Serving => "serving",
        Phase::Draining { .. } => "draining",
        Phase::Gone => "gone",
    }
}

/// The contract: in a phase, somebody waiting where that can be, an event leads to a phase with actions. What is not
/// listed changes neither.
#[test]
fn what_each_event_does_in_each_phase() {
    use Event::*;
    let failed = |text: &str| Action::Answer(Answer::Failed(text.into()));
    let loaded = [Load];
    let proving = [Load, Ordered(1)];
    let broken = [Load, Ordered(1), Lost(1, "dead".into())];
    let serving = [Load, Ordered(1), Ready(1, Ok(()))];
    let draining = [Load, Ordered(1), Ready(1, Ok(())), Retire];
    let check = |on_trial: bool, before: &[Event], event: Event, phase: &str, actions: &[Action]| {
        let mut life = after(on_trial, before);
        let from = name(life.phase());
        if !matches!(life.phase(), Phase::Serving | Phase::Draining { .. }) {
            assert_eq!(tell(&mut life, Time::ZERO, Asked), []);
        }
        let done = tell(&mut life, Time::ZERO, event.clone());
        assert_eq!((name(life.phase()), &done[..]), (phase, actions), "{event:?} while {from}, on trial: {on_trial}");
    };
    check(false, &[], Load, "starting", &[]);
    check(false, &[], Retire, "draining", &[Action::Answer(Answer::TakenAway)]);
    check(false, &[], NoNode, "unloaded", &[]);

    check(false, &loaded, Emulated(Ok(())), "serving", &[Action::TakeOver, Action::Answer(Answer::Ready)]);
    check(true, &loaded, Emulated(Ok(())), "starting", &[Action::Keep]);
    check(false, &loaded, Emulated(slow()), "failed", &[failed("slow")]);
    check(false, &loaded, NoNode, "starting", &[]);
    check(false, &loaded, NoRoom("full".into()), "failed", &[failed("full")]);
    check(true, &loaded, NoRoom("full".into()), "draining", &[failed("full")]);
    check(false, &loaded, Ordered(1), "proving", &[]);
    check(false, &loaded, Ready(1, Ok(())), "starting", &[]);
    check(false, &loaded, Retire, "draining", &[Action::Answer(Answer::TakenAway)]);

    check(false, &proving, Ready(1, Ok(())), "serving", &[Action::TakeOver, Action::Answer(Answer::Ready)]);
    check(true, &proving, Ready(1, Ok(())), "proving", &[Action::Keep]);
    check(true, &proving, Kept(Ok(())), "serving", &[Action::TakeOver, Action::Answer(Answer::Ready)]);
    check(true, &proving, Kept(Err("full".into())), "draining", &[Action::Answer(Answer::NotKept("full".into()))]);
    check(false, &proving, Kept(Ok(())), "proving", &[]);
    check(false, &proving, Ready(1, slow()), "failed", &[Action::Stop(1), failed("slow")]);
    check(true, &proving, Ready(1, slow()), "draining", &[Action::Stop(1), failed("slow")]);
    check(false, &proving, Lost(1, "dead".into()), "failed", &[failed("dead")]);
    check(true, &proving, Lost(1, "dead".into()), "draining", &[failed("dead")]);
    check(false, &proving, Lost(2, "dead".into()), "proving", &[]);
    check(false, &proving, Left(1), "starting", &[]);
    check(false, &proving, NoRoom("full".into()), "proving", &[]);

    check(false, &broken, Ready(1, Ok(())), "serving", &[Action::TakeOver, Action::Answer(Answer::Ready)]);
    check(false, &broken, Lost(1, "dead again".into()), "failed", &[failed("dead again")]);
    check(false, &broken, Ordered(2), "failed", &[]);
    check(false, &[Load, NoRoom("full".into())], Ordered(1), "proving", &[]);

    check(false, &serving, Asked, "serving", &[Action::Answer(Answer::Ready)]);
    check(false, &serving, Lost(1, "dead".into()), "serving", &[]);
    check(false, &serving, Ready(1, slow()), "serving", &[]);
    check(false, &serving, NoRoom("full".into()), "serving", &[]);
    check(false, &serving, Left(1), "serving", &[]);
    check(false, &serving, Idle, "serving", &[]);
    check(false, &serving, Retire, "draining", &[]);

    check(false, &draining, Asked, "draining", &[Action::Answer(Answer::TakenAway)]);
    check(false, &draining, Ready(1, Ok(())), "draining", &[]);
    check(false, &draining, Idle, "draining", &[]);
    check(true, &[Load, Ordered(1), Retire], Ready(1, Ok(())), "draining", &[Action::Stop(1)]);
}

#[test]
fn a_deployment_goes_when_clients_have_stopped_seeing_it_and_nothing_is_left() {
    let mut life = after(false, &[Event::Load, Event::Retire]);
    assert_eq!(tell(&mut life, Time::ZERO + GRACE, Event::Idle), []);
    let late = Time::ZERO + GRACE + Span::from_nanos(1);
    assert_eq!(tell(&mut life, late, Event::Idle), [Action::Remove]);
    assert_eq!(tell(&mut life, late, Event::Asked), [Action::Answer(Answer::TakenAway)]);
    assert_eq!((life.phase(), tell(&mut life.clone(), late, Event::Idle)), (&Phase::Gone, vec![]));
}

#[test]
fn a_model_that_was_too_slow_is_measured_again_after_a_wait_that_doubles() {
    let mut life = after(false, &[Event::Load, Event::Ordered(1)]);
    let mut now = Time::ZERO;
    for (worker, wait) in [(1, 3), (2, 6), (3, 12), (4, 24), (5, 48), (6, 96), (7, 192), (8, 300), (9, 300)] {
        tell(&mut life, now, Event::Ordered(worker));
        tell(&mut life, now, Event::Ready(worker, slow()));
        let told = format!("slow; it is measured again in {}", Span::from_secs(wait));
        assert_eq!((life.phase(), life.trouble()), (&Phase::Failed(told.clone()), Some(told)));
        let again = now + Span::from_secs(wait);
        assert!(!life.may_start(now) && !life.may_start(again - Span::from_nanos(1)) && life.may_start(again));
        now = again;
    }
    // Another worker of the same start does not make the wait longer.
    let mut life = after(false, &[Event::Load, Event::Ordered(1), Event::Ordered(2), Event::Asked]);
    assert_eq!(tell(&mut life, Time::ZERO, Event::Ready(1, slow())), [Action::Stop(1)]);
    assert_eq!(tell(&mut life, at(1), Event::Ready(2, Ok(()))), [Action::TakeOver, Action::Answer(Answer::Ready)]);
    assert_eq!((life.ready(), life.may_start(at(1)), life.trouble()), (1, true, None));
}

#[test]
fn whoever_waits_is_told_what_is_missing() {
    let told = |life: &mut Life| {
        let due = life.next_timer().expect("somebody waits");
        let mut actions = Vec::new();
        life.on_timer(due - Span::from_nanos(1), &mut actions);
        assert_eq!(actions, [], "calling it early does nothing");
        life.on_timer(due, &mut actions);
        let [Action::Answer(Answer::Failed(why))] = &actions[..] else { panic!("{actions:?}") };
        (due, why.clone())
    };
    let mut life = after(true, &[Event::Load, Event::Asked, Event::NoNode]);
    let (due, why) = told(&mut life);
    assert_eq!(due, Time::ZERO + ROOM_PATIENCE);
    assert_eq!(why, "it has no worker after 60s: no node takes workers: start one with `weft node`");
    assert!(life.is_retired(), "what was tried only goes");
    // While a worker loads, longer; a worker that comes and goes makes it no longer.
    let mut life = after(false, &[Event::Load, Event::Asked]);
    for second in 0..1_000 {
        tell(&mut life, at(second), Event::Ordered(second));
        if life.next_timer().is_some_and(|due| due <= at(second)) {
            break;
        }
        tell(&mut life, at(second), Event::Left(second));
    }
    let (due, why) = told(&mut life);
    assert_eq!(due, Time::ZERO + PATIENCE);
    assert_eq!(why, "it has no worker after 600s: one is being started, or its node is not there");
    assert!(matches!(life.phase(), Phase::Failed(_)), "it is tried on");
}

/// What a test knows of a life without looking at it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Known {
    workers: BTreeSet<u64>,
    ready: BTreeSet<u64>,
    waits: bool,
    kept: bool,
    took_over: bool,
    removed: bool,
}

/// Tells a life of an event and checks all that must hold.
fn step(life: &mut Life, known: &mut Known, now: Time, event: Event) {
    let before = life.clone();
    let actions = tell(life, now, event.clone());
    let gone = before.phase() == &Phase::Gone;
    match &event {
        Event::Asked => known.waits = true,
        _ if gone => {}
        Event::Ordered(worker) => drop(known.workers.insert(*worker)),
        Event::Ready(worker, _) if known.workers.contains(worker) => drop(known.ready.insert(*worker)),
        Event::Lost(worker, _) | Event::Silent(worker) => drop(known.ready.remove(worker)),
        Event::Left(worker) => {
            known.ready.remove(worker);
            known.workers.remove(worker);
        }
        Event::Kept(Ok(())) => known.kept = true,
        _ => {}
    }
    check(life, known, &before, &event, &actions);
}

fn check(life: &Life, known: &mut Known, before: &Life, event: &Event, actions: &[Action]) {
    for action in actions {
        match action {
            Action::Stop(worker) => {
                assert!(known.workers.remove(worker), "worker {worker} is not there to be stopped");
                known.ready.remove(worker);
            }
            Action::Keep => assert!(before.is_on_trial(), "only what is on trial is to be written down"),
            Action::TakeOver => {
                assert!(!known.took_over && (known.kept || !before.is_on_trial()), "{event:?} in {before:?}");
                known.took_over = true;
            }
            Action::Answer(answer) => {
                assert!(std::mem::take(&mut known.waits), "nobody waited and was told {answer:?}");
                assert!(*answer != Answer::Ready || life.is_proven(), "{answer:?} in {life:?}");
                let failed = matches!(answer, Answer::Failed(_));
                assert!(!failed || !life.is_on_trial() || life.is_retired() || before.phase() == &Phase::Unloaded);
            }
            Action::Remove => {
                assert!(!known.removed && life.phase() == &Phase::Gone);
                known.removed = true;
            }
        }
    }
    // Nobody is heard of who is not ready or silent, so `ready` is known but for those who were heard of again.
    assert!(life.ready() <= known.workers.len() || life.phase() == &Phase::Gone, "{life:?} with {known:?}");
    assert!(known.waits == life.next_timer().is_some(), "{life:?} with {known:?}");
    let served = matches!(life.phase(), Phase::Unloaded | Phase::Gone) || life.ready() > 0;
    assert!(life.trouble().is_some_and(|why| !why.is_empty()) != served, "{life:?} does not say why");
    assert!(!life.is_troubled() || life.ready() == 0);
    assert!(before.phase() != &Phase::Gone || life.phase() == &Phase::Gone);
}

fn events() -> Vec<Event> {
    use Event::*;
    let mut events = vec![Load, Asked, Emulated(Ok(())), Emulated(slow()), NoNode, NoRoom("full".into())];
    events.extend([Kept(Ok(())), Kept(Err("disk".into())), Retire, Idle]);
    for worker in [1, 2] {
        events.extend([Ordered(worker), Ready(worker, Ok(())), Ready(worker, slow()), Left(worker)]);
        events.extend([Lost(worker, "dead".into()), Silent(worker), Heard(worker)]);
    }
    events
}

/// Lets the clock run with nothing else happening: whoever waits is answered.
fn nobody_waits_for_ever(mut life: Life, mut known: Known) {
    for _ in 0..2 {
        let Some(due) = life.next_timer() else { break };
        let before = life.clone();
        let mut actions = Vec::new();
        life.on_timer(due, &mut actions);
        check(&life, &mut known, &before, &Event::Idle, &actions);
    }
    assert!(!known.waits, "somebody waits for ever in {life:?}");
}

/// The moments of the exhaustive search: so far apart that whoever waits for a grace, a new measurement or a node has
/// waited long enough, and whoever waits for a worker.
const MOMENTS: [u64; 3] = [0, 70, 700];

/// Every order of events at every moment, until there is no state that was not seen.
#[test]
fn what_must_hold_holds_in_every_order_of_events() {
    let events = events();
    for on_trial in [false, true] {
        let first = (0, Life::new(on_trial), Known::default());
        let (mut seen, mut open) = (BTreeSet::from([first.clone()]), vec![first]);
        while let Some((moment, life, known)) = open.pop() {
            let mut found = Vec::new();
            for event in &events {
                let (mut life, mut known) = (life.clone(), known.clone());
                step(&mut life, &mut known, at(MOMENTS[moment]), event.clone());
                found.push((moment, life, known));
            }
            if let Some(later) = MOMENTS.get(moment + 1) {
                let (mut life, mut known) = (life, known);
                let (before, mut actions) = (life.clone(), Vec::new());
                life.on_timer(at(*later), &mut actions);
                check(&life, &mut known, &before, &Event::Idle, &actions);
                found.push((moment + 1, life, known));
            }
            for state in found {
                if seen.insert(state.clone()) {
                    nobody_waits_for_ever(state.1.clone(), state.2.clone());
                    open.push(state);
                }
            }
        }
        assert!(seen.len() > 1_000, "{} states", seen.len());
    }
}

proptest! {
    #[test]
    fn what_must_hold_holds_over_long_lives(
        on_trial in any::<bool>(),
        steps in prop::collection::vec((any::<prop::sample::Index>(), 0..4_000u64), 1..200),
    ) {
        let (mut life, mut known, mut now) = (Life::new(on_trial), Known::default(), Time::ZERO);
        let events = events();
        for (event, millis) in steps {
            now += Span::from_millis(millis);
            if life.next_timer().is_some_and(|due| due <= now) {
                let before = life.clone();
                let mut actions = Vec::new();
                life.on_timer(now, &mut actions);
                check(&life, &mut known, &before, &Event::Idle, &actions);
            }
            step(&mut life, &mut known, now, event.get(&events).clone());
        }
        nobody_waits_for_ever(life, known);
    }
}
