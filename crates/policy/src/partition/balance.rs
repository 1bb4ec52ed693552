//! The decision itself: models find homes, GPUs are dealt out, and then both move for as long as that pays.

use super::books::{Books, Part};
use super::plan::{PartitionPlan, Reason, Unplaced};
use super::{Parameters, PartitionView};
use crate::staffing::ONE;
use crate::{ModelId, Span};
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// How far what a model needs may stray before it is divided into more or fewer parts, as a fraction.
const STRAY: (u64, u64) = (5, 4);

/// Plans the next epoch. The same view gives the same plan, and a plan that was executed is followed by one without steps
/// for as long as nothing changes.
pub fn partition(view: &PartitionView, parameters: &Parameters) -> PartitionPlan {
    let gpus: usize = view.kinds.iter().map(|kind| kind.count).sum();
    let open = view.subclusters.clamp(1, gpus.max(1));
    let mut books = Books::new(view, parameters, open);
    let highest_before = books.highest();
    remove_gone(&mut books);
    deal_out(&mut books);
    fill_small(&mut books);
    divide(&mut books);
    settle_in(&mut books);
    even_out(&mut books);
    if close(&mut books) {
        even_out(&mut books);
    }
    // Models that moved may have made room for GPUs of a type that did not fit before.
    for _ in 0..open {
        if !fill_small(&mut books) {
            break;
        }
        even_out(&mut books);
    }
    // Who found no home may find one where something left.
    let unplaced = settle_in(&mut books);
    PartitionPlan { unplaced, highest_before, ..books.plan() }
}

/// Models that are not served any more make room first.
fn remove_gone(books: &mut Books) {
    for index in 0..books.homes.len() {
        if !books.view.models[index].served {
            for home in books.homes[index].clone() {
                books.unload(ModelId::new(index), home, Reason::Gone);
            }
        }
    }
}

/// GPUs that are in no sub-cluster go where there are fewest.
fn deal_out(books: &mut Books) {
    for kind in 0..books.view.kinds.len() {
        let assigned: usize = books.places.iter().map(|place| place.gpus[kind]).sum();
        let mut order: BTreeSet<(u64, usize)> = (0..books.places.len())
            .filter(|index| books.places[*index].open && books.fits_kind(*index, kind))
            .map(|index| (books.places[index].capacity, index))
            .collect();
        let mut dealt = vec![0; books.places.len()];
        for _ in assigned..books.view.kinds[kind].count {
            let Some((capacity, to)) = order.pop_first() else { break };
            dealt[to] += 1;
            order.insert((capacity + books.worth[kind].max(1), to));
        }
        for (to, count) in dealt.into_iter().enumerate().filter(|(_, count)| *count > 0) {
            books.shift_gpus(kind, count, None, to, Reason::Joined);
        }
    }
}

/// A sub-cluster with less than half of its part gets its part, from those that have most; whether any did.
fn fill_small(books: &mut Books) -> bool {
    let mut any = false;
    let even = books.even_capacity();
    for to in 0..books.places.len() {
        if !books.places[to].open || books.places[to].capacity * 2 >= even {
            continue;
        }
        while books.places[to].capacity < even {
            let donors = (0..books.places.len()).filter(|from| *from != to && books.places[*from].open);
            let Some(from) = donors.max_by_key(|from| (books.places[*from].capacity, Reverse(*from))) else { break };
            let Some(kind) = spare_kind(books, from, to) else { break };
            if books.places[from].capacity < even + books.worth[kind] {
                break;
            }
            books.shift_gpus(kind, 1, Some(from), to, Reason::Small);
            any = true;
        }
    }
    any
}

/// The type of GPU that a sub-cluster has most of and can spare for another: not its last one of a type, and one that
/// has memory for what runs there.
fn spare_kind(books: &Books, from: usize, to: usize) -> Option<usize> {
    let gpus = &books.places[from].gpus;
    let spare = (0..gpus.len()).filter(|kind| gpus[*kind] > 1 && books.worth[*kind] > 0 && books.fits_kind(to, *kind));
    spare.max_by_key(|kind| (gpus[*kind], Reverse(*kind)))
}

/// Decides in how many parts each model is served, and brings those that have homes to that number.
fn divide(books: &mut Books) {
    let open = books.places.iter().filter(|place| place.open).count();
    let limit = (books.even_capacity() * books.parameters.largest / 1_000).max(1);
    for index in 0..books.homes.len() {
        let model = ModelId::new(index);
        if !books.view.models[index].served {
            continue;
        }
        let whole = books.part(model, 1).load;
        let parts = |load: u64| (load.div_ceil(limit) as usize).clamp(1, open);
        let (more, fewer) = (parts(whole * STRAY.1 / STRAY.0), parts(whole * STRAY.0 / STRAY.1));
        let wanted = match books.homes[index].len() {
            0 => parts(whole),
            has if has < more => parts(whole),
            has if has > fewer => fewer,
            has => has,
        };
        books.wanted[index] = wanted;
        books.set_part(model, books.part(model, wanted));
        while books.homes[index].len() > wanted {
            let homes = books.homes[index].iter().copied();
            let from =
                homes.max_by_key(|home| (!books.places[*home].open, books.places[*home].pressure, Reverse(*home)));
            books.unload(model, from.expect("it has homes"), Reason::Shrunk);
        }
        if !books.fresh[index] {
            while books.homes[index].len() < wanted {
                let Some(to) = best_home(books, model) else {
                    // As many parts as there is room for: larger ones.
                    books.set_part(model, books.part(model, books.homes[index].len()));
                    break;
                };
                books.load(model, to, Reason::Grown);
            }
        }
    }
}

/// The sub-cluster that would be least pressed and fullest, both taken together, with a model in it.
fn best_home(books: &Books, model: ModelId) -> Option<usize> {
    let part = books.parts[model.index()];
    let score = |to: usize| {
        let place = &books.places[to];
        let pressure = with(books, to, part);
        let fill = |kind: usize| {
            let memory = books.view.kinds[kind].memory.max(1);
            (u128::from(place.used[kind]) * u128::from(PartitionPlan::FULL) / u128::from(memory)) as u64
        };
        let fullest = (0..place.gpus.len()).filter(|kind| place.gpus[*kind] > 0).map(fill).max().unwrap_or(0);
        pressure.saturating_add(fullest)
    };
    let takes = (0..books.places.len()).filter(|to| books.takes(model, *to) == (true, true));
    takes.min_by_key(|to| (score(*to), *to))
}

/// A sub-cluster's pressure with one more part of a model.
fn with(books: &Books, to: usize, part: Part) -> u64 {
    let place = &books.places[to];
    books.pressure(place.load + part.load, place.variance + part.variance, place.capacity)
}

/// A sub-cluster's pressure without one of its parts of a model.
fn without(books: &Books, from: usize, part: Part) -> u64 {
    let place = &books.places[from];
    books.pressure(place.load - part.load, place.variance - part.variance, place.capacity)
}

/// Models without a home get one, the hardest to place first: by their part of all GPUs that are needed or of all memory.
/// What a model alone needs has the headroom for its own bursts, so bursty ones come early, each to another sub-cluster.
fn settle_in(books: &mut Books) -> Vec<(ModelId, Unplaced)> {
    let alone = |part: &Part| books.staffed(part.load, part.variance);
    let load: u64 = books.parts.iter().map(alone).sum::<u64>().max(1);
    let weights: u64 = books.view.models.iter().filter(|demand| demand.served).map(|demand| demand.weights).sum();
    let share = |part: u64, of: u64| u128::from(part) * u128::from(PartitionPlan::FULL) * 1_024 / u128::from(of.max(1));
    let mut order: Vec<_> = (0..books.homes.len())
        .filter(|index| books.homes[*index].is_empty() && books.view.models[*index].served)
        .map(|index| {
            let hardest = share(alone(&books.parts[index]), load).max(share(books.view.models[index].weights, weights));
            (Reverse(hardest), index)
        })
        .collect();
    order.sort_unstable();
    let mut unplaced = Vec::new();
    for (_, index) in order {
        let model = ModelId::new(index);
        let wanted = books.wanted[index];
        for _ in 0..wanted {
            let Some(to) = best_home(books, model) else { break };
            books.load(model, to, Reason::New);
        }
        let found = books.homes[index].len();
        if found == 0 {
            let able = |to: usize| books.takes(model, to).0;
            let why = if (0..books.places.len()).any(able) { Unplaced::Memory } else { Unplaced::NoGpu };
            unplaced.push((model, why));
        } else if found < wanted {
            books.set_part(model, books.part(model, found));
        }
    }
    unplaced.sort_unstable();
    unplaced
}

/// What could be done for a sub-cluster that is pressed.
#[derive(Clone, Copy, Debug)]
enum Move {
    Model { model: ModelId, to: usize },
    Gpu { kind: usize, from: usize },
}

/// A move, what it brings in an epoch and what it costs, both in nanoseconds of GPU time.
#[derive(Clone, Copy, Debug)]
struct Offer {
    what: Move,
    gain: u128,
    price: u128,
}

impl Offer {
    /// Whether this one brings more for its price. Of equal ones the first stands.
    fn beats(&self, other: &Offer) -> bool {
        let (left, right) = (self.gain * other.price.max(1), other.gain * self.price.max(1));
        left > right || left == right && self.gain > other.gain
    }
}

/// Moves models and GPUs, always for the most pressed sub-cluster that can be helped, until none is above what is
/// tolerated or no move for it pays. Each move leaves both sub-clusters below what the pressed one had, so it ends.
fn even_out(books: &mut Books) {
    let even = books.even();
    let above = |thousandths: u64| (u128::from(even) * u128::from(1_000 + thousandths) / 1_000) as u64;
    // Where nothing had a home there is nothing to be spared, and the plan goes on for as long as it gets better.
    let free = books.fresh.iter().all(|fresh| *fresh);
    let (act, rest) = if free {
        (even, even)
    } else {
        (above(books.parameters.tolerance), above(books.parameters.settled.min(books.parameters.tolerance)))
    };
    let mut helped = vec![false; books.places.len()];
    let mut stuck = vec![false; books.places.len()];
    loop {
        let pressed = |index: &usize| {
            let place = &books.places[*index];
            let limit = if helped[*index] { rest } else { act };
            !stuck[*index] && (place.pressure > limit || !place.open && !place.models.is_empty())
        };
        let chosen = (0..books.places.len()).filter(pressed);
        let key = |index: &usize| (!books.places[*index].open, books.places[*index].pressure, Reverse(*index));
        let Some(chosen) = chosen.max_by_key(key) else { return };
        match best_move(books, chosen, even) {
            Some(Move::Model { model, to }) => {
                let because = if books.places[chosen].open { Reason::Pressed } else { Reason::Closing };
                books.shift(model, chosen, to, because);
            }
            Some(Move::Gpu { kind, from }) => books.shift_gpus(kind, 1, Some(from), chosen, Reason::Pressed),
            None => {
                stuck[chosen] = true;
                continue;
            }
        }
        helped[chosen] = true;
        stuck.fill(false);
    }
}

/// What brings a pressed sub-cluster most for its price, of what pays at all.
fn best_move(books: &Books, pressed: usize, even: u64) -> Option<Move> {
    let place = &books.places[pressed];
    let mut others: Vec<_> = (0..books.places.len()).filter(|to| *to != pressed && books.places[*to].open).collect();
    others.sort_unstable_by_key(|to| (books.places[*to].pressure, *to));
    let epoch = u128::from(books.parameters.epoch.nanos());
    // Beyond a thousand times full all pressures are alike.
    let within = |pressure: u64| pressure.min(1_000 * PartitionPlan::FULL);
    let gain = |after: u64, other: u64| {
        let relief = within(place.pressure).saturating_sub(within(after.max(other).max(even)));
        u128::from(relief) * u128::from(place.capacity) * epoch / (u128::from(PartitionPlan::FULL) * u128::from(ONE))
    };
    let mut best: Option<Offer> = None;
    let mut consider = |offer: Offer| {
        let pays = offer.gain >= offer.price && offer.gain > 0 || !place.open;
        if pays && best.is_none_or(|best| offer.beats(&best)) {
            best = Some(offer);
        }
    };
    for model in &place.models {
        let part = books.parts[model.index()];
        if part.load == 0 && place.open {
            continue;
        }
        let Some(to) = others.iter().copied().find(|to| books.takes(*model, *to) == (true, true)) else { continue };
        let (after, other) = (without(books, pressed, part), with(books, to, part));
        if other < place.pressure && after < place.pressure || !place.open {
            let price = if books.fresh[model.index()] { Span::ZERO } else { books.price_of_load(*model, to) };
            let what = Move::Model { model: *model, to };
            consider(Offer { what, gain: gain(after, other), price: u128::from(price.nanos()) });
        }
    }
    if place.open {
        let even_capacity = books.even_capacity();
        let donor = others.iter().find_map(|from| {
            let kind = spare_kind(books, *from, pressed)?;
            // Nobody is left with less than half of an even part.
            let left = books.places[*from]
                .capacity
                .checked_sub(books.worth[kind])
                .filter(|left| *left * 2 >= even_capacity)?;
            Some((*from, kind, left))
        });
        if let Some((from, kind, left)) = donor {
            let donor = &books.places[from];
            let after = books.pressure(place.load, place.variance, place.capacity + books.worth[kind]);
            let other = books.pressure(donor.load, donor.variance, left);
            if other < place.pressure {
                let price = books.price_of_gpu(kind, pressed);
                consider(Offer {
                    what: Move::Gpu { kind, from },
                    gain: gain(after, other),
                    price: u128::from(price.nanos()),
                });
            }
        }
    }
    best.map(|offer| offer.what)
}

/// GPUs of sub-clusters that close go where the pressure is highest, once their models have left; whether any did.
fn close(books: &mut Books) -> bool {
    let mut any = false;
    for from in 0..books.places.len() {
        if books.places[from].open || !books.places[from].models.is_empty() {
            continue;
        }
        for kind in 0..books.view.kinds.len() {
            while books.places[from].gpus[kind] > 0 {
                let takes = (0..books.places.len()).filter(|to| books.places[*to].open && books.fits_kind(*to, kind));
                let Some(to) = takes.max_by_key(|to| (books.places[*to].pressure, Reverse(*to))) else { break };
                books.shift_gpus(kind, 1, Some(from), to, Reason::Closing);
                any = true;
            }
        }
    }
    any
}
