//! What the demo serves, and how much is asked of it.

/// A model and what is asked of it.
pub(super) struct Model {
    pub(super) name: &'static str,
    pub(super) what: &'static str,
    pub(super) rate: u32,
    pub(super) slo_ms: u32,
    pub(super) shape: Option<&'static str>,
}

pub(super) const RESNET: Model = Model {
    name: "resnet50",
    what: "emulated, on four emulated GPUs",
    rate: 300,
    slo_ms: 50,
    shape: Some("INPUT:1x4"),
};
pub(super) const SENTIMENT: Model = Model { name: "sentiment", what: "Python", rate: 100, slo_ms: 100, shape: None };
pub(super) const VISION: Model =
    Model { name: "vision", what: "Python, with a share of the GPU", rate: 20, slo_ms: 100, shape: None };
pub(super) const MAGIKA: Model =
    Model { name: "magika", what: "ONNX", rate: 10, slo_ms: 250, shape: Some("bytes:1x2048") };
