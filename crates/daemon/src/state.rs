//! Everything that the daemon's thread owns.

use crate::config::Config;
use crate::gpu_state::GpuState;
use crate::journal::JournalWriter;
use crate::learned::Learned;
use crate::mps::Mps;
use crate::pidfd::Watched;
use crate::registry::{TenantRegistry, Token};
use crate::reservation::Reservation;
use crate::store::Store;
use policy::sharing::Controller;
use share_client::Gpu;
use shm::{Connection, Listener, MAX_MESSAGE, Peer, now_ns};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// A program or a command at the other end of a connection.
pub(crate) struct Client {
    pub(crate) connection: Connection,
    pub(crate) peer: Peer,
    /// Its tenant, once it sent hello.
    pub(crate) tenant: Option<u32>,
    /// Its process. Another process may hold the connection too, so the end of the connection is not enough to go by.
    pub(crate) process: Option<Watched>,
    /// Whether it registered a tenant.
    pub(crate) registered: bool,
}

/// Everything that the thread owns.
pub(crate) struct DaemonState {
    pub(crate) config: Config,
    pub(crate) listener: Listener,
    /// Held so that no other daemon starts here.
    pub(crate) lock: File,
    pub(crate) stop: Arc<OwnedFd>,
    pub(crate) clients: BTreeMap<Token, Client>,
    pub(crate) last_token: Token,
    pub(crate) registry: TenantRegistry,
    pub(crate) gpu_states: Vec<GpuState>,
    pub(crate) controller: Controller,
    /// GPUs whose memory is being freed for a program that will ask again.
    pub(crate) reservations: Vec<Reservation>,
    /// The MPS server; `None` on a machine without GPUs.
    pub(crate) mps: Option<Mps>,
    pub(crate) store: Store,
    /// Tick at once: something happened that tenants must see before the next tick.
    pub(crate) tick_now: bool,
    /// Write the tenants down at once.
    pub(crate) write_now: bool,
    pub(crate) ticked_ns: u64,
    pub(crate) used_ns: u64,
    pub(crate) accept_from_ns: u64,
    pub(crate) buffer: Vec<u8>,
}

impl DaemonState {
    /// The state of a daemon that begins, with the tenants that the one before wrote down.
    pub(crate) fn new(config: Config, listener: Listener, lock: File, stop: Arc<OwnedFd>) -> DaemonState {
        let now = now_ns();
        let store = Store::new(&config.paths.tenants());
        let registry = store.read(now);
        let learned = Learned::new(config.paths.learned(), config.gpus.driver.as_deref());
        let record = |gpu: &Gpu| {
            let folder = config.record.as_deref()?;
            let begun = JournalWriter::begin(folder, gpu.index);
            begun.inspect_err(|error| tracing::warn!("no journal in {}: {error}", folder.display())).ok()
        };
        let gpu_state = |gpu: &Gpu| GpuState::new(gpu.clone(), learned.clone(), &config.sharing, record(gpu));
        let gpu_states = config.gpus.gpus.iter().map(gpu_state).collect();
        let mps = (!config.gpus.gpus.is_empty()).then(|| Mps::start(&config.paths.mps(), Mps::program()));
        // The first program must find it.
        mps.iter().for_each(Mps::settle);
        DaemonState {
            config,
            listener,
            lock,
            stop,
            clients: BTreeMap::new(),
            last_token: 0,
            registry,
            gpu_states,
            controller: Controller::default(),
            reservations: Vec::new(),
            mps,
            store,
            tick_now: false,
            write_now: false,
            ticked_ns: now,
            used_ns: now,
            accept_from_ns: 0,
            buffer: vec![0; MAX_MESSAGE],
        }
    }
}
