//! What is done to which part of the cluster, and how people name it.

use anyhow::{Result, bail};
use std::fmt;

pub(super) const GATEWAYS: usize = 2;
pub(super) const NODES: usize = 3;

/// A process of the cluster. Gateways and nodes are counted from 0 here and from 1 in names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    Scheduler,
    /// A second scheduler, in clusters that have one.
    Standby,
    Gateway(usize),
    Node(usize),
}

impl Part {
    /// Those of a cluster with one scheduler.
    pub(super) fn all() -> Vec<Part> {
        let gateways = (0..GATEWAYS).map(Part::Gateway);
        std::iter::once(Part::Scheduler).chain(gateways).chain((0..NODES).map(Part::Node)).collect()
    }

    /// Those of a cluster with two, the schedulers first.
    pub(super) fn all_with_standby() -> Vec<Part> {
        let mut parts = Part::all();
        parts.insert(1, Part::Standby);
        parts
    }

    /// Its name without its number.
    fn role(self) -> &'static str {
        match self {
            Part::Scheduler => "scheduler",
            Part::Standby => "standby",
            Part::Gateway(_) => "gateway",
            Part::Node(_) => "node",
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Part::Scheduler | Part::Standby => f.write_str(self.role()),
            Part::Gateway(index) | Part::Node(index) => write!(f, "{}-{}", self.role(), index + 1),
        }
    }
}

/// What is done to a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// SIGKILL; it is started again a moment later.
    Kill,
    /// SIGTERM; it is started again when it has ended.
    Term,
    /// SIGTERM, and again while it drains.
    TermTwice,
    /// SIGSTOP, and SIGCONT after some seconds.
    Stop,
}

impl Kind {
    const ALL: [Kind; 4] = [Kind::Kill, Kind::Term, Kind::TermTwice, Kind::Stop];

    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Kill => "kill",
            Kind::Term => "term",
            Kind::TermTwice => "term-twice",
            Kind::Stop => "stop",
        }
    }

    /// Whether a gateway may lose what it had accepted: it had no chance to answer.
    pub(super) fn is_sudden(self) -> bool {
        matches!(self, Kind::Kill | Kind::TermTwice)
    }
}

/// One row of the table: a fault of one part, or a restart of all in turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Case {
    Fault(Part, Kind),
    Rolling,
}

impl Case {
    pub(super) fn all() -> Vec<Case> {
        let faults = Kind::ALL.into_iter().flat_map(|kind| Part::all().into_iter().map(move |part| (part, kind)));
        faults.map(|(part, kind)| Case::Fault(part, kind)).chain([Case::Rolling]).collect()
    }

    /// One of each role, for a short run.
    pub(super) fn few() -> Vec<Case> {
        let first = |case: &Case| match case {
            Case::Fault(Part::Gateway(index) | Part::Node(index), _) => *index == 0,
            Case::Fault(Part::Scheduler | Part::Standby, _) | Case::Rolling => true,
        };
        let wanted = |case: &Case| first(case) && !matches!(case, Case::Fault(_, Kind::TermTwice));
        Case::all().into_iter().filter(wanted).collect()
    }

    /// Those that were named, in the usual order; all when none was.
    pub(super) fn named(names: &[String]) -> Result<Vec<Case>> {
        if let Some(unknown) = names.iter().find(|name| !Case::all().iter().any(|case| case.is_named(name))) {
            bail!(
                "know the fault {unknown}: name a part (scheduler, gateway, gateway-1, node, node-3), a kind (kill, term, \
                 term-twice, stop), both (node:stop) or rolling"
            );
        }
        let wanted = |case: &Case| names.is_empty() || names.iter().any(|name| case.is_named(name));
        Ok(Case::all().into_iter().filter(wanted).collect())
    }

    fn is_named(self, name: &str) -> bool {
        let Case::Fault(part, kind) = self else { return name == "rolling" };
        let is_part = |name: &str| name == part.role() || name == part.to_string();
        match name.split_once(':') {
            Some((of, how)) => is_part(of) && how == kind.name(),
            None => is_part(name) || name == kind.name(),
        }
    }

    pub(super) fn part(self) -> String {
        match self {
            Case::Fault(part, _) => part.to_string(),
            Case::Rolling => "all in turn".to_owned(),
        }
    }

    pub(super) fn fault(self) -> &'static str {
        match self {
            Case::Fault(_, kind) => kind.name(),
            Case::Rolling => "rolling",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> Vec<String> {
        let cases = Case::named(&[name.to_owned()]).unwrap();
        cases.iter().map(|case| format!("{}:{}", case.part(), case.fault())).collect()
    }

    #[test]
    fn faults_are_chosen_by_part_kind_or_both() {
        assert_eq!(named("gateway:kill"), ["gateway-1:kill", "gateway-2:kill"]);
        assert_eq!(named("node-3:stop"), ["node-3:stop"]);
        assert_eq!(named("scheduler").len(), 4);
        assert_eq!(named("term").len(), 6);
        assert_eq!(named("rolling"), ["all in turn:rolling"]);
        assert_eq!(Case::named(&[]).unwrap().len(), 25);
        assert!(Case::named(&["node-4:stop".to_owned()]).is_err());
    }

    #[test]
    fn a_short_run_has_every_role_and_kind() {
        assert_eq!(Case::few().len(), 10);
    }
}
