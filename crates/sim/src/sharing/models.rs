//! Inference of common vision models as kernels and gaps.
//!
//! **These are descriptions, not measurements.** They follow the structure of the torchvision models at batch 1 (how
//! many convolutions, how large, where the host has to look at a result before it can go on), with kernel lengths of
//! the order that one data-centre GPU of the A100's class shows and the host time per launch of eager PyTorch. The one
//! measured anchor is ResNet50 at 224 x 224: about 221 launches, kernels of about 12 us, 13 us of host between them.
//! FIKIT's evaluation used models of this kind; the numbers here are ours.
//!
//! Two shapes matter. Classifiers with small inputs are bound by the host: every kernel is done before the next comes.
//! Segmentation and detection at 520 and 800 pixels are bound by the GPU in their backbone: the host runs ahead and
//! the queue fills; detectors then stop at every step whose size depends on data (proposals, non-maximum suppression).

use super::scenario::Kernel;
use policy::Span;

/// A stretch of kernels that comes several times: `(duration, host time after the launch)` in microseconds, and what
/// the host does after waiting for all of it, if it waits.
struct Stage {
    times: usize,
    kernels: &'static [(u64, u64)],
    sync: Option<u64>,
}

const fn stage(times: usize, kernels: &'static [(u64, u64)]) -> Stage {
    Stage { times, kernels, sync: None }
}

const fn stop(times: usize, kernels: &'static [(u64, u64)], host: u64) -> Stage {
    Stage { times, kernels, sync: Some(host) }
}

/// Convolution, normalisation, activation of a ResNet block at 224 pixels.
const SMALL: &[(u64, u64)] = &[(20, 25), (8, 25), (6, 25)];
/// The same at 520 pixels with dilation, and at 800 pixels: the GPU is what takes time.
const DILATED: &[(u64, u64)] = &[(300, 25), (60, 25), (40, 25)];
const LARGE: &[(u64, u64)] = &[(220, 25), (60, 25), (45, 25)];
/// Small steps on boxes.
const BOXES: &[(u64, u64)] = &[(6, 25), (5, 25), (5, 25), (8, 25)];

const ALEXNET: &[Stage] =
    &[stage(5, &[(40, 25), (5, 25), (6, 25)]), stage(2, &[(90, 25), (4, 25), (4, 25)]), stop(1, &[(30, 25)], 300)];
const VGG16: &[Stage] = &[
    stage(4, &[(260, 25), (30, 25)]),
    stage(9, &[(150, 25), (12, 25)]),
    stage(5, &[(15, 25)]),
    stop(1, &[(240, 25), (60, 25), (15, 25)], 300),
];
const GOOGLENET: &[Stage] = &[
    stage(3, &[(25, 25), (8, 25), (6, 25)]),
    stage(54, &[(12, 25), (5, 25), (4, 25)]),
    stage(9, &[(6, 25)]),
    stop(1, &[(10, 25)], 300),
];
const RESNET50: &[Stage] = &[stage(53, SMALL), stage(16, &[(8, 25), (6, 25), (6, 25)]), stop(1, &[(14, 25)], 300)];
const RESNET101: &[Stage] = &[stage(104, SMALL), stage(33, &[(8, 25), (6, 25), (6, 25)]), stop(1, &[(14, 25)], 300)];
const FCN_RESNET50: &[Stage] =
    &[stage(53, DILATED), stage(2, &[(900, 25), (50, 25)]), stop(1, &[(120, 25), (80, 25)], 500)];
const DEEPLABV3_RESNET50: &[Stage] = &[
    stage(53, DILATED),
    stage(5, &[(700, 25), (40, 25), (25, 25)]),
    stage(2, &[(900, 25), (50, 25)]),
    stop(1, &[(120, 25), (80, 25)], 500),
];
const FASTERRCNN: &[Stage] = &[
    stage(53, LARGE),
    stage(8, &[(350, 25), (30, 25)]),
    stop(5, BOXES, 60),
    stop(4, &[(12, 25), (6, 25), (30, 25), (10, 25), (6, 25)], 80),
    stage(1, &[(250, 25), (400, 25), (90, 25)]),
    stop(6, BOXES, 80),
    stop(1, &[(40, 25)], 500),
];
const MASKRCNN: &[Stage] = &[
    stage(53, LARGE),
    stage(8, &[(350, 25), (30, 25)]),
    stop(5, BOXES, 60),
    stop(4, &[(12, 25), (6, 25), (30, 25), (10, 25), (6, 25)], 80),
    stage(1, &[(250, 25), (400, 25), (90, 25)]),
    stop(6, BOXES, 80),
    stage(5, &[(450, 25), (40, 25)]),
    stop(4, &[(60, 25), (20, 25)], 120),
    stop(1, &[(40, 25)], 800),
];
const KEYPOINTRCNN: &[Stage] = &[
    stage(53, LARGE),
    stage(8, &[(350, 25), (30, 25)]),
    stop(5, BOXES, 60),
    stop(4, &[(12, 25), (6, 25), (30, 25), (10, 25), (6, 25)], 80),
    stage(1, &[(250, 25), (400, 25), (90, 25)]),
    stop(6, BOXES, 80),
    stage(8, &[(600, 25), (50, 25)]),
    stop(8, &[(25, 25), (8, 25), (8, 25)], 100),
    stop(1, &[(40, 25)], 800),
];

const ALL: [(&str, &[Stage]); 10] = [
    ("alexnet", ALEXNET),
    ("vgg16", VGG16),
    ("googlenet", GOOGLENET),
    ("resnet50", RESNET50),
    ("resnet101", RESNET101),
    ("fcn_resnet50", FCN_RESNET50),
    ("deeplabv3_resnet50", DEEPLABV3_RESNET50),
    ("fasterrcnn", FASTERRCNN),
    ("maskrcnn", MASKRCNN),
    ("keypointrcnn", KEYPOINTRCNN),
];

/// Names of the models.
pub const MODELS: [&str; ALL.len()] = {
    let mut names = [""; ALL.len()];
    let mut index = 0;
    while index < ALL.len() {
        names[index] = ALL[index].0;
        index += 1;
    }
    names
};

/// What one inference of a model launches.
pub fn model(name: &str) -> Option<Vec<Kernel>> {
    let (_, stages) = ALL.iter().find(|(known, _)| *known == name)?;
    let mut kernels = Vec::new();
    for stage in *stages {
        for _ in 0..stage.times {
            for (place, (duration, gap)) in stage.kernels.iter().enumerate() {
                let sync = stage.sync.filter(|_| place + 1 == stage.kernels.len());
                kernels.push(Kernel {
                    duration: Span::from_micros(*duration),
                    gap: Span::from_micros(sync.unwrap_or(*gap)),
                    sync: sync.is_some(),
                    // Kernels this short do not fill a large GPU; those that do take longer.
                    sms: (*duration as u32 * 10).clamp(50, 1_000),
                    memory_bound: *duration < 50,
                });
            }
        }
    }
    Some(kernels)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Launches, milliseconds of GPU, syncs.
    #[test]
    fn models_are_of_the_size_that_is_told() {
        let shape = |name: &str| {
            let kernels = model(name).expect("it is a model");
            let gpu: f64 = kernels.iter().map(|kernel| kernel.duration.millis()).sum();
            (kernels.len(), (gpu * 10.0).round() / 10.0, kernels.iter().filter(|kernel| kernel.sync).count())
        };
        let shapes: Vec<String> = MODELS.iter().map(|name| format!("{name} {:?}", shape(name))).collect();
        let expected = [
            "alexnet (22, 0.5, 1)",
            "vgg16 (34, 3.0, 1)",
            "googlenet (181, 1.3, 1)",
            "resnet50 (208, 2.1, 1)",
            "resnet101 (412, 4.2, 1)",
            "fcn_resnet50 (165, 23.3, 1)",
            "deeplabv3_resnet50 (180, 27.1, 1)",
            "fasterrcnn (243, 21.6, 16)",
            "maskrcnn (261, 24.3, 20)",
            "keypointrcnn (283, 27.1, 24)",
        ];
        assert_eq!(shapes, expected);
    }
}
