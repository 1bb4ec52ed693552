//! Numbers in the code that shares GPUs: each is a parameter in `SharingConfig`, derived from one, or of a kind that no
//! parameter could be. A new constant fails the test until it is one of these; "tuning" is not one of the kinds.

use crate::imports::tokens::{tokens, without_tests};
use crate::sources;
use std::collections::BTreeSet;
use std::path::Path;

/// Where the code is.
const FOLDERS: [&str; 6] = [
    "crates/policy/src/sharing",
    "crates/share-core/src",
    "crates/shm/src",
    "crates/shim/src",
    "crates/daemon/src",
    "crates/share-client/src",
];

/// What a number can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The size of a table, a place in one, a bit of a word.
    Layout,
    /// A word or a time-out between two processes: both sides have to have the same.
    Protocol,
    /// A number of the driver's, of NVML's or of the hardware's.
    Driver,
    /// As much as is accepted from others, or kept.
    Limit,
    /// What a published policy, or another one to compare with, says.
    Paper,
    /// Mathematics.
    Formula,
    /// What reading a clock or taking a sample costs, and how many samples make a mean: the error bars of a measurement.
    Measurement,
}
use Kind::{Driver, Formula, Layout, Limit, Measurement, Paper, Protocol};

/// A file, and its constants by kind.
type InFile = (&'static str, &'static [(Kind, &'static [&'static str])]);

/// The constants of each file that are not derived from other constants.
const KINDS: &[InFile] = &[
    ("policy/src/sharing/config.rs", &[(Formula, &["QUEUE_DECAY", "PERIOD_DECAY"]), (Layout, &["HELD", "GAPS"])]),
    ("policy/src/sharing/controllers.rs", &[(Paper, &["SLICE"])]),
    ("policy/src/sharing/controllers/orion_like.rs", &[(Paper, &["IN_FLIGHT"])]),
    ("policy/src/sharing/controllers/tgs.rs", &[(Paper, &["STEP", "WATCH", "LOSS", "START", "RAISE"])]),
    ("policy/src/sharing/journal.rs", &[(Limit, &["TENANTS", "BURSTS"])]),
    ("share-core/src/admission.rs", &[(Protocol, &["NO_LIMIT", "BUDGET_NS"])]),
    ("share-core/src/busy.rs", &[(Protocol, &["USUAL"])]),
    ("share-core/src/preemption.rs", &[(Protocol, &["LEASE"])]),
    ("shm/src/message.rs", &[(Protocol, &["HEADER", "NAME"])]),
    ("shm/src/notes.rs", &[(Layout, &["PROBES"])]),
    (
        "shm/src/page.rs",
        &[
            (Protocol, &["MAGIC", "VERSION", "STATE_FREE", "STATE_LIVE", "GATE_HELD", "GATE_STEP"]),
            (Layout, &["PAGE_BYTES", "SLOTS", "ENDED"]),
        ],
    ),
    ("shm/src/socket.rs", &[(Protocol, &["MAX_MESSAGE"]), (Limit, &["BACKLOG"])]),
    ("shm/src/view.rs", &[(Protocol, &["PRIORITY_LAST"])]),
    ("shim/src/attach.rs", &[(Protocol, &["FIRST_ANSWER", "REFUSED_NS"]), (Limit, &["ANSWER_BYTES"])]),
    ("shim/src/boundary.rs", &[(Driver, &["NOT_FOUND"])]),
    ("shim/src/capture.rs", &[(Layout, &["CAPTURES"])]),
    (
        "shim/src/channels.rs",
        &[
            (Driver, &["REQUEST", "FREE", "CONTROL", "ALLOCATE", "CONTROL_REQUEST", "GET_IDENTITY", "BINARY"]),
            (Layout, &["OBJECTS"]),
        ],
    ),
    ("shim/src/clock.rs", &[(Layout, &["RUN", "NONE", "WHOLE"]), (Measurement, &["WAITED_NS"])]),
    ("shim/src/current.rs", &[(Driver, &["DEFAULT_STREAMS"])]),
    ("shim/src/dlsym.rs", &[(Layout, &["ASK_REAL", "NOT_THERE"])]),
    ("shim/src/fast_path.rs", &[(Layout, &["GPU_BITS"])]),
    ("shim/src/gpu.rs", &[(Layout, &["GPUS"])]),
    ("shim/src/hot.rs", &[(Layout, &["NO_GPU", "SEVERAL_GPUS"])]),
    ("shim/src/identity.rs", &[(Layout, &["RECORDS", "PROBES", "NO_NOTE"]), (Measurement, &["ROUND", "UNKNOWN_NS"])]),
    ("shim/src/link.rs", &[(Layout, &["ABSENT", "ATTACHED", "REFUSED"])]),
    ("shim/src/notes.rs", &[(Layout, &["FUNCTIONS", "PROBES"]), (Limit, &["PUBLISHED_PER_MS", "PUBLISHED_MIN"])]),
    ("shim/src/ops/graph.rs", &[(Driver, &["KERNEL", "CHILD"]), (Limit, &["DEEPEST"])]),
    ("shim/src/ops/launch.rs", &[(Driver, &["NOT_SUPPORTED"]), (Measurement, &["SLACK_NS"])]),
    ("shim/src/ops/memory.rs", &[(Driver, &["PITCH", "ON_DEVICE"])]),
    ("shim/src/ops/sync.rs", &[(Layout, &["EVENTS"])]),
    (
        "shim/src/preempt.rs",
        &[
            (Driver, &["DISABLE_CHANNELS", "PREEMPT", "CHANNELS", "NOT_ASKED"]),
            (Limit, &["STACK_BYTES"]),
            (Measurement, &["TIMER_SLACK", "LEAVES_OVER"]),
        ],
    ),
    ("shim/src/real.rs", &[(Driver, &["MISSING"]), (Limit, &["MOST"])]),
    ("shim/src/resolve.rs", &[(Driver, &["NEWEST", "PER_THREAD"])]),
    ("shim/src/sample.rs", &[(Driver, &["NOT_READY"])]),
    ("shim/src/samples.rs", &[(Layout, &["SLOTS"]), (Measurement, &["LEAD_MAX_NS", "LEAST_NS"])]),
    ("shim/src/slice.rs", &[(Driver, &["SET_SLICE", "GET_SLICE"])]),
    (
        "shim/src/sm_cap.rs",
        &[
            (Driver, &["GROUP", "TOO_LARGE", "SMS", "WITH_STREAM", "NON_BLOCKING", "WITHOUT_TIME"]),
            (Layout, &["GROUPS"]),
            (Limit, &["REFUSALS_MAX"]),
        ],
    ),
    ("shim/src/streams.rs", &[(Layout, &["OTHERS", "NONE"])]),
    ("shim/src/table.rs", &[(Layout, &["COUNT"])]),
    (
        "shim/src/ticks.rs",
        &[
            (Measurement, &["BELIEVED_NS", "LEARNED_NS", "SAME_TICKS", "STEADY_NS"]),
            (Limit, &["TRIES"]),
            (Layout, &["USELESS"]),
        ],
    ),
    ("shim/src/types.rs", &[(Driver, &["SUCCESS", "OUT_OF_MEMORY"])]),
    ("shim/src/untracked.rs", &[(Measurement, &["EVERY"]), (Limit, &["UNTRACKED_MAX"]), (Formula, &["GOLDEN"])]),
    ("daemon/src/answers.rs", &[(Protocol, &["WANTED_NS"]), (Limit, &["NAME_BYTES"])]),
    ("daemon/src/event_loop.rs", &[(Limit, &["CONNECTIONS_MAX", "CONNECTIONS_OF_USER_MAX", "ACCEPT_RETRY_NS"])]),
    ("daemon/src/gpu_state.rs", &[(Limit, &["INTERVAL_MAX_NS"])]),
    ("daemon/src/journal.rs", &[(Limit, &["BYTES_MAX", "WAITING_MAX"])]),
    ("daemon/src/learned.rs", &[(Protocol, &["VERSION"]), (Limit, &["PROGRAMS_MAX", "BYTES_MAX"])]),
    (
        "daemon/src/mps.rs",
        &[(Protocol, &["CHECK_EVERY", "TIMEOUT", "RETRY_FIRST", "RETRY_MAX"]), (Limit, &["ANSWER_MAX"])],
    ),
    ("daemon/src/registry.rs", &[(Limit, &["TENANTS_MAX"])]),
    ("daemon/src/store.rs", &[(Protocol, &["KEPT_NS"])]),
    ("daemon/src/tenant_usage.rs", &[(Limit, &["CHARGE_MAX_NS"]), (Layout, &["MARK_EVERY_NS", "MARKS"])]),
    ("share-client/src/client.rs", &[(Protocol, &["TIMEOUT"]), (Limit, &["FILE_MIN"])]),
];

/// Types whose values are numbers, and the two structs of times.
const NUMBERS: [&str; 22] = [
    "u8",
    "u16",
    "u32",
    "u64",
    "u128",
    "usize",
    "i8",
    "i16",
    "i32",
    "i64",
    "isize",
    "f32",
    "f64",
    "c_int",
    "c_uint",
    "c_ulong",
    "c_ulonglong",
    "CuResult",
    "Duration",
    "Span",
    "Patience",
    "Lease",
];

/// Names of constants in `text` that are numbers, without those that name another constant in their value.
fn numbers(text: &str) -> Vec<String> {
    let (tokens, _) = without_tests(&tokens(text));
    let is_constant = |word: &String| {
        word.len() > 1
            && word != "MAX"
            && word.starts_with(|first: char| first.is_ascii_uppercase())
            && word.chars().all(|mark| mark.is_ascii_uppercase() || mark.is_ascii_digit() || mark == '_')
    };
    let mut found = Vec::new();
    for (at, word) in tokens.iter().enumerate() {
        let [name, colon, kind] = tokens.get(at + 1..at + 4).unwrap_or_default() else { continue };
        let is_number = NUMBERS.contains(&kind.as_str()) && tokens.get(at + 4).is_some_and(|next| next == "=");
        if word != "const" || colon != ":" || !is_number {
            continue;
        }
        let value: Vec<&String> = tokens[at + 5..].iter().take_while(|token| *token != ";").collect();
        if !value.into_iter().any(is_constant) {
            found.push(name.clone());
        }
    }
    found
}

#[test]
fn every_number_in_sharing_code_is_a_parameter_or_of_a_kind_that_cannot_be_one() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut real = BTreeSet::new();
    for folder in FOLDERS {
        for (path, text) in sources(&root.join(folder)) {
            if path.rsplit('/').next() == Some("tests.rs") || path.starts_with("model") {
                continue;
            }
            let file = format!("{}/{path}", folder.trim_start_matches("crates/"));
            real.extend(numbers(&text).into_iter().map(|name| (file.clone(), name)));
        }
    }
    let listed: Vec<(String, String)> = KINDS
        .iter()
        .flat_map(|(file, kinds)| kinds.iter().flat_map(move |(_, names)| names.iter().map(move |name| (file, name))))
        .map(|(file, name)| ((*file).to_owned(), (*name).to_owned()))
        .collect();
    let written: BTreeSet<_> = listed.iter().cloned().collect();
    assert_eq!(written.len(), listed.len(), "a constant is listed twice");
    assert!(real.len() > 100, "{} constants found", real.len());
    let only =
        |one: &BTreeSet<_>, other: &BTreeSet<_>| one.difference(other).cloned().collect::<Vec<(String, String)>>();
    let why = "derive it from a parameter of SharingConfig or from share_core's times, or say in KINDS why it is none";
    assert_eq!(only(&real, &written), [], "new numbers in sharing code: {why}");
    assert_eq!(only(&written, &real), [], "numbers that are not there any more, or are derived");
}

#[test]
fn a_number_is_found_and_what_is_derived_from_another_is_not() {
    let text = "const A_NS: u64 = 5;\npub(crate) const WAIT: Duration = Duration::from_millis(2);\n\
        const HALF: u64 = A_NS / 2;\nconst ALL: u64 = u64::MAX;\nconst NAME: &str = \"x\";\nfn f<const N: usize>() {}\n\
        #[cfg(test)]\nmod tests { const T: u64 = 1; }";
    assert_eq!(numbers(text), ["A_NS", "WAIT", "ALL"]);
}
