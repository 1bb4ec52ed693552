//! The database that Weft kept its deployments in before, `weft.redb`: read once, and left beside under another name.

use super::disk::free_name;
use super::format::{self, Line};
use anyhow::{Context, Result, bail};
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};
use std::path::{Path, PathBuf};

/// What it was called.
pub(super) const FILE: &str = "weft.redb";

const MODELS: TableDefinition<&str, &str> = TableDefinition::new("models");

/// Its records; none where there is no such file.
pub(super) fn read(path: &Path) -> Result<Option<Vec<Line>>> {
    match std::fs::metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
        // The database would make a new one of it without a word.
        Ok(found) if found.len() == 0 => bail!("it is empty, which Weft never leaves behind"),
        Ok(_) => {}
    }
    let database = Database::open(path)?;
    let read = database.begin_read()?;
    let table = match read.open_table(MODELS) {
        Ok(table) => table,
        Err(redb::TableError::TableDoesNotExist(_)) => return Ok(Some(Vec::new())),
        Err(error) => return Err(error.into()),
    };
    let mut raw = Vec::new();
    for row in table.iter()? {
        let (key, value) = row?;
        raw.push(format::adopt(key.value(), value.value()));
    }
    Ok(Some(format::lines(&raw)))
}

/// Gives the file another name, so that nobody takes it for the one in use.
pub(super) fn set_aside(path: &Path) -> Result<PathBuf> {
    let kept = free_name(path, "migrated");
    std::fs::rename(path, &kept).with_context(|| format!("rename {}", path.display()))?;
    Ok(kept)
}
