//! What lets best-effort work in: Weft's controller, and others to compare with on the same machinery. One file each.

pub(super) mod control;
mod fikit;
mod fixed_slice;
mod gate;
mod orion_like;
mod tgs;
mod unmanaged;
mod weft;

use super::SharingConfig;
use crate::Span;
use control::Control;
use std::fmt;
use std::str::FromStr;

/// A controller by its name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Controller {
    /// SMs, time slices, preemption or the launch gate, whatever there is, as far as the tails of latency programs bear it.
    #[default]
    Weft,
    /// Nobody interferes.
    Unmanaged,
    /// Best-effort time slices of one length.
    FixedSlice(Span),
    /// The launch gate alone: best-effort work fills gaps, a little of it at a time.
    Gate,
    /// FIKIT: gaps are filled with what fits; nothing holds a launch when no task runs.
    Fikit,
    /// Orion, as far as it can be done without knowing what kernels are bound by: short kernels beside others, within a small
    /// part of how long their work takes.
    OrionLike,
    /// TGS: the rate of best-effort work follows the rate of the others, slowly.
    Tgs,
}

/// The slice when none is said.
const SLICE: Span = Span::from_micros(400);

impl Controller {
    /// One that has seen nothing yet.
    pub(super) fn start(self, config: &SharingConfig) -> Box<dyn Control> {
        match self {
            Controller::Weft => Box::new(weft::Weft::new(config)),
            Controller::Unmanaged => Box::new(unmanaged::Unmanaged),
            Controller::FixedSlice(slice) => Box::new(fixed_slice::FixedSlice(slice)),
            Controller::Gate => Box::new(gate::GateAlone(config.budget_most)),
            Controller::Fikit => Box::new(fikit::Fikit),
            Controller::OrionLike => Box::new(orion_like::OrionLike),
            Controller::Tgs => Box::new(tgs::Tgs::new()),
        }
    }
}

impl FromStr for Controller {
    type Err = String;

    fn from_str(text: &str) -> Result<Controller, String> {
        let (name, value) = text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value)));
        let controller = match name {
            "weft" => Controller::Weft,
            "unmanaged" => Controller::Unmanaged,
            "slices" => {
                let slice =
                    value.map_or(Ok(SLICE), |value| value.parse().map_err(|_| format!("`{value}` is no time")))?;
                if slice < Span::from_micros(100) || slice > Span::from_secs(1) {
                    return Err(format!("a slice of {slice} makes no sense; 100us to 1s do"));
                }
                return Ok(Controller::FixedSlice(slice));
            }
            "gate" => Controller::Gate,
            "fikit" => Controller::Fikit,
            // As it was called before.
            "orion-like" | "orion" => Controller::OrionLike,
            "tgs" => Controller::Tgs,
            _ => {
                let known = "weft, unmanaged, slices=400us, gate, fikit, orion-like and tgs";
                return Err(format!("`{text}` is no controller; {known} are"));
            }
        };
        if value.is_some() { Err(format!("`{name}` takes no value")) } else { Ok(controller) }
    }
}

impl fmt::Display for Controller {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Controller::Weft => formatter.write_str("weft"),
            Controller::Unmanaged => formatter.write_str("unmanaged"),
            Controller::FixedSlice(slice) => write!(formatter, "slices={slice}"),
            Controller::Gate => formatter.write_str("gate"),
            Controller::Fikit => formatter.write_str("fikit"),
            Controller::OrionLike => formatter.write_str("orion-like"),
            Controller::Tgs => formatter.write_str("tgs"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controllers_are_read_as_they_are_written() {
        for text in ["weft", "unmanaged", "slices=400us", "slices=2ms", "gate", "fikit", "orion-like", "tgs"] {
            assert_eq!(text.parse::<Controller>().unwrap().to_string(), text);
        }
        assert_eq!("slices".parse(), Ok(Controller::FixedSlice(SLICE)));
        for wrong in ["", "fair", "slices=1us", "slices=", "gate=3", "slices=2s"] {
            assert!(wrong.parse::<Controller>().is_err(), "{wrong}");
        }
    }
}
