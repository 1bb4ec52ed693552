//! What has to be known before anything is sent.

use crate::client::Client;
use crate::config::{Config, Inputs};
use crate::error::SetupError;
use crate::inputs;

/// Asks the server about its models and has the requests written that will be sent.
pub(crate) async fn setup<C: Client>(config: &Config, mut client: C) -> Result<C, SetupError> {
    let file = read_file(config)?;
    let mut all = Vec::new();
    for (index, model) in config.models.iter().enumerate() {
        let specs = client.describe(&model.name).await?;
        let requests = inputs::requests(&specs, config, index, file.as_deref());
        all.push(requests.map_err(|problem| SetupError::Inputs { model: model.name.clone(), problem })?);
    }
    client.prepare(config, &all);
    Ok(client)
}

/// The text of the file that inputs come from, if they do.
fn read_file(config: &Config) -> Result<Option<String>, SetupError> {
    let Inputs::File(path) = &config.inputs else { return Ok(None) };
    let told = |error: std::io::Error| SetupError::File { path: path.clone(), reason: error.kind().to_string() };
    std::fs::read_to_string(path).map(Some).map_err(told)
}
