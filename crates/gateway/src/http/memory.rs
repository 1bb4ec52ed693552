//! Shared memory: regions that clients make known, to pass tensors without sending them.

use super::answer::{Answer, Problem, empty, value};
use super::models::parse;
use super::route::{Deed, Kind};
use crate::Gateway;
use crate::shared_memory::Region;
use bytes::Bytes;
use serde_json::{Value, json};

/// Does what is asked with one region, or with all.
pub(super) fn serve(
    gateway: &Gateway,
    kind: Kind,
    name: Option<&str>,
    deed: Deed,
    body: &Bytes,
) -> Result<Answer, Problem> {
    match (kind, deed) {
        (Kind::System, Deed::Status) => {
            let regions = gateway.regions.status(name).map_err(Problem::not_found)?;
            let one = |region: &Region| json!({"name": region.name, "key": region.key, "offset": region.offset, "byte_size": region.bytes});
            Ok(value(&Value::Array(regions.iter().map(one).collect())))
        }
        (Kind::System, Deed::Register) => {
            #[derive(serde::Deserialize)]
            struct Wanted {
                key: String,
                #[serde(default)]
                offset: u64,
                byte_size: u64,
            }
            let wanted: Wanted = parse(body)?;
            let name = name.unwrap_or_default();
            let registered = gateway.regions.register(name, &wanted.key, wanted.offset, wanted.byte_size);
            registered.map_err(Problem::invalid)?;
            Ok(empty())
        }
        (Kind::System, Deed::Unregister) => {
            gateway.regions.unregister(name);
            Ok(empty())
        }
        (Kind::Cuda, Deed::Status) if name.is_none() => Ok(value(&json!([]))),
        (Kind::Cuda, Deed::Unregister) if name.is_none() => Ok(empty()),
        (Kind::Cuda, Deed::Status | Deed::Unregister) => {
            Err(Problem::not_found(format!("there is no CUDA shared memory `{}`", name.unwrap_or_default())))
        }
        (Kind::Cuda, Deed::Register) => {
            Err(Problem::invalid("CUDA shared memory is not supported; use system shared memory"))
        }
    }
}
