//! What is deployed, on disk: written before anybody is told that it was done, so that it survives anything.

use anyhow::{Context, Result};
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};
use rpc::ModelSpec;
use serde::{Deserialize, Serialize};
use std::path::Path;

const MODELS: TableDefinition<&str, &str> = TableDefinition::new("models");

/// A deployment as it is remembered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stored {
    /// What to serve.
    pub spec: ModelSpec,
    /// Whether its workers should run.
    pub loaded: bool,
}

/// The database of deployments.
pub struct Store {
    database: Database,
}

impl Store {
    /// Opens a database, or makes one.
    pub fn open(path: &Path) -> Result<Store> {
        let problem = || format!("open the database {}; is another `weft` running with it?", path.display());
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).with_context(|| format!("make the folder {}", folder.display()))?;
        }
        let database = Database::create(path).with_context(problem)?;
        Ok(Store { database })
    }

    /// A database that is forgotten with the process.
    pub fn in_memory() -> Result<Store> {
        let backend = redb::backends::InMemoryBackend::new();
        let database = Database::builder().create_with_backend(backend).context("make a database in memory")?;
        Ok(Store { database })
    }

    /// All deployments, by name and version.
    pub fn all(&self) -> Result<Vec<Stored>> {
        let read = self.database.begin_read()?;
        let table = match read.open_table(MODELS) {
            Ok(table) => table,
            Err(redb::TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
            Err(error) => return Err(error.into()),
        };
        let mut all = Vec::new();
        for row in table.iter()? {
            let (key, value) = row?;
            let stored = serde_json::from_str(value.value());
            all.push(stored.with_context(|| format!("read the deployment of {}", key.value()))?);
        }
        Ok(all)
    }

    /// Remembers a deployment.
    pub fn put(&self, stored: &Stored) -> Result<()> {
        let text = serde_json::to_string(stored)?;
        let write = self.database.begin_write()?;
        write.open_table(MODELS)?.insert(key(&stored.spec.name, stored.spec.version).as_str(), text.as_str())?;
        write.commit().context("write the database of deployments")
    }

    /// Forgets a deployment.
    pub fn remove(&self, name: &str, version: u32) -> Result<()> {
        let write = self.database.begin_write()?;
        write.open_table(MODELS)?.remove(key(name, version).as_str())?;
        write.commit().context("write the database of deployments")
    }
}

fn key(name: &str, version: u32) -> String {
    format!("{name}:{version:010}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(name: &str, version: u32) -> Stored {
        let text = format!(r#"{{"name": "{name}", "version": {version}, "kind": "onnx", "path": "x.onnx"}}"#);
        Stored { spec: serde_json::from_str(&text).unwrap(), loaded: true }
    }

    #[test]
    fn what_is_put_is_there_after_opening_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state/weft.redb");
        let store = Store::open(&path).unwrap();
        assert_eq!(store.all().unwrap(), []);
        for stored in [stored("b", 1), stored("a", 2), stored("a", 10)] {
            store.put(&stored).unwrap();
        }
        store.remove("b", 1).unwrap();
        assert!(Store::open(&path).is_err(), "one process at a time");
        drop(store);
        let store = Store::open(&path).unwrap();
        assert_eq!(store.all().unwrap(), [stored("a", 2), stored("a", 10)]);
    }
}
