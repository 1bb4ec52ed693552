//! Whether a gateway is ready, as whoever sends it traffic asks.
//!
//! Strict, as Triton is: every model that is loaded can be asked. Else: none is still being loaded. A model that was
//! ordered just now counts in neither way before it worked once: trying out a new model takes nobody out of service.

use crate::Gateway;
use rpc::{Entry, State};
use std::sync::atomic::Ordering::Relaxed;

impl Gateway {
    /// Lets one model that is not ready make the server not ready, which is how it begins, or not.
    pub fn set_strict_readiness(&self, strict: bool) {
        self.strict_readiness.store(strict, Relaxed);
    }

    /// Whether the server can be used.
    pub fn ready(&self) -> bool {
        self.unready().is_none()
    }

    /// What keeps the server from being ready: the scheduler, or which model and why.
    pub fn unready(&self) -> Option<String> {
        if !self.expects_scheduler() {
            return Some(crate::core::NO_SCHEDULER.into());
        }
        let strict = self.strict_readiness.load(Relaxed);
        let counts = |entry: &&Entry| !entry.health.on_trial && !entry.is_unloaded();
        let catalog = self.catalog();
        let why = |entry: &Entry| match &entry.state {
            State::Loading => Some("is still being loaded".to_owned()),
            State::Unavailable(reason) if strict => Some(format!("is not available: {reason}")),
            State::Ready if strict => Some(format!("has no worker right now: {}", entry.health.trouble.as_ref()?)),
            State::Unavailable(_) | State::Ready => None,
        };
        let mut reasons = catalog.entries.iter().filter(counts).filter_map(|entry| Some((entry, why(entry)?)));
        reasons.next().map(|(entry, why)| format!("model `{}` {why}", entry.spec.name))
    }

    /// Whether a model is still being loaded.
    pub fn is_loading(&self) -> bool {
        !self.expects_scheduler() || self.catalog().entries.iter().any(|entry| entry.state == State::Loading)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    fn check(gateway: &Gateway, change: impl FnOnce(&mut Entry), strict: bool, loose: bool) -> String {
        let mut catalog = fixture::catalog(&["a", "b"]);
        change(&mut catalog.entries[1]);
        gateway.publish(catalog);
        gateway.set_strict_readiness(false);
        assert_eq!(gateway.ready(), loose);
        gateway.set_strict_readiness(true);
        assert_eq!(gateway.ready(), strict);
        gateway.unready().unwrap_or_default()
    }

    #[test]
    fn one_broken_model_makes_the_server_not_ready_unless_told_otherwise() {
        let gateway = fixture::gateway();
        assert_eq!(check(&gateway, |_| {}, true, true), "");
        let broken = |entry: &mut Entry| entry.state = State::Unavailable("no weights".into());
        assert_eq!(check(&gateway, broken, false, true), "model `b` is not available: no weights");
        let unloaded = |entry: &mut Entry| entry.state = State::Unavailable(rpc::catalog::UNLOADED.into());
        assert_eq!(check(&gateway, unloaded, true, true), "");
        assert_eq!(
            check(&gateway, |entry| entry.state = State::Loading, false, false),
            "model `b` is still being loaded"
        );
        let tried = |entry: &mut Entry| (entry.state, entry.health.on_trial) = (State::Loading, true);
        assert_eq!(check(&gateway, tried, true, true), "");
        let dead = |entry: &mut Entry| entry.health.trouble = Some("exited with status 1".into());
        assert_eq!(check(&gateway, dead, false, true), "model `b` has no worker right now: exited with status 1");
    }
}
