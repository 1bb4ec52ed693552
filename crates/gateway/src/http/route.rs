//! Paths, and what they mean.

use hyper::Method;
use std::borrow::Cow;

/// What a path is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Route<'a> {
    /// The server itself.
    Server,
    /// Whether it runs.
    Live,
    /// Whether it takes requests.
    Ready,
    /// What this interface is, for machines.
    OpenApi,
    /// A model, or one version of it.
    Model(Cow<'a, str>, Option<Cow<'a, str>>, About),
    /// Statistics of all models.
    AllStatistics,
    /// The list of all models.
    Index,
    /// Start a model.
    Load(Cow<'a, str>),
    /// Stop a model.
    Unload(Cow<'a, str>),
    /// Registered memory, one region or all.
    Memory(Kind, Option<Cow<'a, str>>, Deed),
    /// How requests are traced: of all models, or of one.
    Trace(Option<Cow<'a, str>>),
    /// What is logged.
    Logging,
}

/// What is asked of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum About {
    /// What it takes and gives.
    Metadata,
    /// Whether it can be asked.
    Ready,
    /// How it is set up.
    Config,
    /// What it did so far.
    Statistics,
    /// An answer.
    Infer,
}

/// A kind of shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Of the machine.
    System,
    /// Of a GPU.
    Cuda,
}

/// What is done with shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deed {
    /// Show it.
    Status,
    /// Make it known.
    Register,
    /// Forget it.
    Unregister,
}

impl<'a> Route<'a> {
    /// What a path means; `None` for a path that means nothing.
    pub(super) fn parse(path: &'a str) -> Option<Route<'a>> {
        let mut parts = [""; 7];
        let mut count = 0;
        for part in path.strip_prefix('/')?.split('/') {
            *parts.get_mut(count)? = part;
            count += 1;
        }
        Some(match &parts[..count] {
            ["v2"] => Route::Server,
            ["v2", "health", "live"] => Route::Live,
            ["v2", "health", "ready"] => Route::Ready,
            ["v2", "openapi.json"] => Route::OpenApi,
            ["v2", "models", "stats"] => Route::AllStatistics,
            ["v2", "models", model] => Route::Model(name(model)?, None, About::Metadata),
            ["v2", "models", model, "versions", version] => {
                Route::Model(name(model)?, Some(name(version)?), About::Metadata)
            }
            ["v2", "models", model, "trace", "setting"] => Route::Trace(Some(name(model)?)),
            ["v2", "models", model, about] => Route::Model(name(model)?, None, About::parse(about)?),
            ["v2", "models", model, "versions", version, about] => {
                Route::Model(name(model)?, Some(name(version)?), About::parse(about)?)
            }
            ["v2", "repository", "index"] => Route::Index,
            ["v2", "repository", "models", model, "load"] => Route::Load(name(model)?),
            ["v2", "repository", "models", model, "unload"] => Route::Unload(name(model)?),
            ["v2", "trace", "setting"] => Route::Trace(None),
            ["v2", "logging"] => Route::Logging,
            ["v2", kind, "region", region, deed] => {
                Route::Memory(Kind::parse(kind)?, Some(name(region)?), Deed::parse(deed)?)
            }
            ["v2", kind, deed @ ("status" | "unregister")] => {
                Route::Memory(Kind::parse(kind)?, None, Deed::parse(deed)?)
            }
            _ => return None,
        })
    }

    /// The methods a path takes.
    pub(super) fn methods(&self) -> &'static str {
        match self {
            Route::Server | Route::Live | Route::Ready | Route::OpenApi | Route::AllStatistics => "GET, HEAD",
            Route::Model(_, _, About::Infer) => "POST",
            Route::Model(..) | Route::Memory(_, _, Deed::Status) => "GET, HEAD",
            Route::Index | Route::Load(_) | Route::Unload(_) | Route::Memory(..) => "POST",
            Route::Trace(_) | Route::Logging => "GET, HEAD, POST",
        }
    }

    /// Whether a path takes a method.
    pub(super) fn takes(&self, method: &Method) -> bool {
        self.methods().split(", ").any(|allowed| allowed == method.as_str())
    }

    /// Whether it is asked without a key: by whoever watches whether the server is well.
    pub(super) fn is_open(&self) -> bool {
        matches!(self, Route::Live | Route::Ready | Route::Model(_, _, About::Ready))
    }

    /// Whether it changes the server for everybody.
    pub(super) fn is_administration(&self, method: &Method) -> bool {
        match self {
            Route::Load(_) | Route::Unload(_) | Route::Memory(_, _, Deed::Register | Deed::Unregister) => true,
            Route::Trace(_) | Route::Logging => method == Method::POST,
            _ => false,
        }
    }
}

impl About {
    fn parse(word: &str) -> Option<About> {
        Some(match word {
            "ready" => About::Ready,
            "config" => About::Config,
            "stats" => About::Statistics,
            "infer" => About::Infer,
            _ => return None,
        })
    }
}

impl Kind {
    fn parse(word: &str) -> Option<Kind> {
        Some(match word {
            "systemsharedmemory" => Kind::System,
            "cudasharedmemory" => Kind::Cuda,
            _ => return None,
        })
    }
}

impl Deed {
    fn parse(word: &str) -> Option<Deed> {
        Some(match word {
            "status" => Deed::Status,
            "register" => Deed::Register,
            "unregister" => Deed::Unregister,
            _ => return None,
        })
    }
}

/// A name in a path, with what is escaped in it. `None` when it is empty or no text.
fn name(part: &str) -> Option<Cow<'_, str>> {
    if part.is_empty() {
        return None;
    }
    if !part.contains('%') {
        return Some(Cow::Borrowed(part));
    }
    let bytes = part.as_bytes();
    let mut whole = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        if *byte != b'%' {
            whole.push(*byte);
            at += 1;
            continue;
        }
        let digit = |byte: &u8| char::from(*byte).to_digit(16);
        let (high, low) = (digit(bytes.get(at + 1)?)?, digit(bytes.get(at + 2)?)?);
        whole.push((high * 16 + low) as u8);
        at += 3;
    }
    String::from_utf8(whole).ok().map(Cow::Owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_mean_what_the_protocol_says() {
        let check = |path: &str, expected: Route<'_>| assert_eq!(Route::parse(path), Some(expected), "{path}");
        let some = |text: &'static str| Some(Cow::Borrowed(text));
        check("/v2", Route::Server);
        check("/v2/health/live", Route::Live);
        check("/v2/models/m", Route::Model("m".into(), None, About::Metadata));
        check("/v2/models/m/versions/3", Route::Model("m".into(), some("3"), About::Metadata));
        check("/v2/models/m/versions/3/infer", Route::Model("m".into(), some("3"), About::Infer));
        check("/v2/models/stats", Route::AllStatistics);
        check("/v2/models/stats/stats", Route::Model("stats".into(), None, About::Statistics));
        check("/v2/models/a%20b%C3%A9/config", Route::Model("a bé".into(), None, About::Config));
        check("/v2/models/m/trace/setting", Route::Trace(some("m")));
        check("/v2/systemsharedmemory/status", Route::Memory(Kind::System, None, Deed::Status));
        check("/v2/cudasharedmemory/region/r/register", Route::Memory(Kind::Cuda, some("r"), Deed::Register));
    }

    #[test]
    fn other_paths_mean_nothing() {
        for path in [
            "",
            "/",
            "v2",
            "/v2/",
            "/v3",
            "/v2/models",
            "/v2/models/",
            "/v2/models//infer",
            "/v2/models/m/",
            "/v2/models/m/nothing",
            "/v2/models/%zz",
            "/v2/models/%",
            "/v2/models/%ff",
            "/v2/models/m/versions",
            "/v2/systemsharedmemory/register",
            "/a/b/c/d/e/f/g/h/i/j",
        ] {
            assert_eq!(Route::parse(path), None, "{path}");
        }
    }
}
