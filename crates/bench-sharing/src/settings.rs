//! The ways to share that are compared: in which world each side runs, and what the daemon is told before.

use std::fmt;

/// How a program is started. A program stays in its world, so each world has programs of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum World {
    /// As if Weft were not there.
    Native,
    /// A client of MPS.
    Mps,
    /// A client of MPS with the lower of its priorities.
    MpsLow,
    /// The same with at most so many percent of the SMs.
    MpsLowShare(u8),
    /// Under Weft, taking turns on the GPU.
    WeftTime,
    /// Under the Weft that chooses, for the first time: by itself, so that it knows what it chooses for.
    WeftFirst,
    /// Under Weft, as Weft chooses.
    Weft,
}

impl World {
    pub(super) fn needs_mps(self) -> bool {
        matches!(self, World::Mps | World::MpsLow | World::MpsLowShare(_))
    }

    pub(super) fn needs_weft(self) -> bool {
        matches!(self, World::WeftTime | World::WeftFirst | World::Weft)
    }
}

impl fmt::Display for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            World::Native => f.write_str("native"),
            World::Mps => f.write_str("mps"),
            World::MpsLow => f.write_str("mps-low"),
            World::MpsLowShare(percent) => write!(f, "mps-low-{percent}"),
            World::WeftTime => f.write_str("weft-time"),
            World::WeftFirst => f.write_str("weft, first run"),
            World::Weft => f.write_str("weft"),
        }
    }
}

/// One way to share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// What it is called.
    pub name: String,
    pub(super) latency: World,
    /// `None`: the latency programs are by themselves.
    pub(super) best_effort: Option<World>,
    /// The policy that the daemon is told to share by.
    pub(super) sharing: Option<&'static str>,
    /// Whether best-effort programs are also measured beside latency programs that have nothing to do.
    pub(super) idle: bool,
    /// What it is, in a few words.
    pub(super) meaning: &'static str,
}

/// What everything is compared with. It is always measured.
pub(super) const ALONE: &str = "alone";
/// What others are compared with as well.
pub(super) const WEFT: &str = "weft";

/// All settings, in the order of tables. `sms`: percentages of SMs that best-effort clients of MPS may use.
pub fn all(sms: &[u8]) -> Vec<Setting> {
    use World::{Mps, MpsLow, MpsLowShare, Native, Weft, WeftTime};
    let setting = |name: &str, latency, best_effort, sharing, meaning| Setting {
        name: name.into(),
        latency,
        best_effort,
        sharing,
        idle: matches!(name, "default" | WEFT),
        meaning,
    };
    let time = |name: &'static str, policy, meaning| setting(name, WeftTime, Some(WeftTime), Some(policy), meaning);
    let mut settings = vec![
        setting(ALONE, Native, None, None, "latency programs by themselves"),
        setting("alone-weft", Weft, None, Some("weft"), "latency programs by themselves, under Weft"),
        setting(
            "alone-weft-time",
            WeftTime,
            None,
            Some("weft"),
            "latency programs by themselves, under Weft, temporal sharing",
        ),
        setting("default", Native, Some(Native), None, "the driver's time slices"),
        setting("mps", Mps, Some(Mps), None, "MPS"),
        setting("mps-priority", Mps, Some(MpsLow), None, "MPS, best-effort at low priority"),
    ];
    settings.extend(sms.iter().map(|&percent| Setting {
        name: format!("mps-sms-{percent}"),
        ..setting(
            "",
            Mps,
            Some(MpsLowShare(percent)),
            None,
            "MPS, best-effort at low priority with this percentage of the SMs",
        )
    }));
    settings.extend([
        time("slices", "slices", "only time slices that Weft sets"),
        time("gate", "gate", "only launches that Weft holds back"),
        time("fikit", "fikit", "FIKIT: best-effort kernels fill gaps between kernels"),
        time("tgs", "tgs", "TGS: the launch rate adapts"),
        time("orion", "orion", "like Orion: kernels whose SMs fit beside"),
        time("weft-time", "weft", "Weft, temporal sharing"),
        setting(WEFT, Weft, Some(Weft), Some("weft"), "Weft"),
    ]);
    settings
}

/// Those with these names, in the order of [`all`]; all of them where none is named. `alone` is always among them.
pub fn select(settings: Vec<Setting>, names: &[String]) -> Result<Vec<Setting>, String> {
    if let Some(unknown) = names.iter().find(|name| settings.iter().all(|setting| setting.name != **name)) {
        let known: Vec<&str> = settings.iter().map(|setting| setting.name.as_str()).collect();
        return Err(format!("there is no setting `{unknown}`; there are {}", known.join(", ")));
    }
    let wanted = |setting: &Setting| names.is_empty() || setting.name == ALONE || names.contains(&setting.name);
    Ok(settings.into_iter().filter(wanted).collect())
}

/// What a setting is, in a few words.
pub(super) fn meaning(name: &str) -> Option<&'static str> {
    let sms: Vec<u8> = name.strip_prefix("mps-sms-").and_then(|percent| percent.parse().ok()).into_iter().collect();
    all(&sms).iter().find(|setting| setting.name == name).map(|setting| setting.meaning)
}

/// The order in which the settings of a pair are measured in a round: each round begins with another one, so that none
/// always follows the same, and alone comes first and last, so that drift in between can be taken out.
pub(super) fn order(settings: &[Setting], round: usize) -> Vec<&Setting> {
    let (alone, mut others): (Vec<&Setting>, Vec<&Setting>) =
        settings.iter().partition(|setting| setting.name == ALONE);
    if !others.is_empty() {
        let begin = round % others.len();
        others.rotate_left(begin);
    }
    [&alone[..], &others[..], &alone[..]].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(settings: &[Setting]) -> Vec<&str> {
        settings.iter().map(|setting| setting.name.as_str()).collect()
    }

    #[test]
    fn every_setting_has_a_name_of_its_own() {
        let settings = all(&[90, 75]);
        let mut names = names(&settings);
        assert!(names.contains(&"mps-sms-90") && names.contains(&"mps-sms-75"));
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        assert_eq!(settings.iter().filter(|setting| setting.idle).count(), 2);
    }

    #[test]
    fn a_selection_keeps_the_order_and_has_alone() {
        let chosen = |wanted: &[&str]| {
            let wanted: Vec<String> = wanted.iter().map(|&name| name.into()).collect();
            select(all(&[90]), &wanted)
        };
        assert_eq!(names(&chosen(&["weft", "default"]).unwrap()), ["alone", "default", "weft"]);
        assert_eq!(chosen(&[]).unwrap(), all(&[90]));
        assert!(chosen(&["mps-sms-75"]).unwrap_err().contains("there is no setting `mps-sms-75`; there are alone, "));
    }

    #[test]
    fn every_round_begins_elsewhere_and_has_everything_between_two_alones() {
        let wanted = ["default", "mps", "weft"].map(String::from);
        let settings = select(all(&[]), &wanted).unwrap();
        let round = |round| order(&settings, round).iter().map(|setting| setting.name.as_str()).collect::<Vec<_>>();
        assert_eq!(round(0), ["alone", "default", "mps", "weft", "alone"]);
        assert_eq!(round(1), ["alone", "mps", "weft", "default", "alone"]);
        assert_eq!(round(2), ["alone", "weft", "default", "mps", "alone"]);
        assert_eq!(round(3), round(0));
        let alone = select(all(&[]), &["alone".into()]).unwrap();
        assert_eq!(order(&alone, 5).len(), 2);
    }

    #[test]
    fn every_setting_has_a_meaning() {
        assert_eq!(meaning("mps"), Some("MPS"));
        assert!(meaning("mps-sms-33").is_some());
        assert_eq!(meaning("none"), None);
    }
}
