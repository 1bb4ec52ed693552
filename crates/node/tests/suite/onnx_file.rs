//! ONNX files of one operator, written byte by byte: the format is protocol buffers, and a few fields are enough.

/// A tensor's name, ONNX's number for its type, and its dimensions; `None` is an open one. No dimensions: not said.
pub(crate) type Value<'a> = (&'a str, u64, &'a [Option<u64>]);

/// ONNX's numbers for types.
pub(crate) mod types {
    pub(crate) const FLOAT: u64 = 1;
    pub(crate) const UINT8: u64 = 2;
    pub(crate) const INT8: u64 = 3;
    pub(crate) const UINT16: u64 = 4;
    pub(crate) const INT16: u64 = 5;
    pub(crate) const INT32: u64 = 6;
    pub(crate) const INT64: u64 = 7;
    pub(crate) const STRING: u64 = 8;
    pub(crate) const BOOL: u64 = 9;
    pub(crate) const FLOAT16: u64 = 10;
    pub(crate) const DOUBLE: u64 = 11;
    pub(crate) const UINT32: u64 = 12;
    pub(crate) const UINT64: u64 = 13;
    pub(crate) const BFLOAT16: u64 = 16;
}

/// A model that applies one operator to its inputs.
pub(crate) fn model(operator: &str, inputs: &[Value<'_>], output: Value<'_>) -> Vec<u8> {
    let mut node = Vec::new();
    for (name, ..) in inputs {
        bytes(&mut node, 1, name.as_bytes());
    }
    bytes(&mut node, 2, output.0.as_bytes());
    bytes(&mut node, 4, operator.as_bytes());

    let mut graph = Vec::new();
    bytes(&mut graph, 1, &node);
    bytes(&mut graph, 2, b"tested");
    for input in inputs {
        bytes(&mut graph, 11, &value(*input));
    }
    bytes(&mut graph, 12, &value(output));

    let mut opset = Vec::new();
    number(&mut opset, 2, 16);
    let mut model = Vec::new();
    number(&mut model, 1, 8);
    bytes(&mut model, 7, &graph);
    bytes(&mut model, 8, &opset);
    model
}

fn value((name, datatype, dimensions): Value<'_>) -> Vec<u8> {
    let mut shape = Vec::new();
    for (index, dimension) in dimensions.iter().enumerate() {
        let mut written = Vec::new();
        match dimension {
            Some(size) => number(&mut written, 1, *size),
            None => bytes(&mut written, 2, format!("open{index}").as_bytes()),
        }
        bytes(&mut shape, 1, &written);
    }
    let mut tensor = Vec::new();
    number(&mut tensor, 1, datatype);
    if !dimensions.is_empty() {
        bytes(&mut tensor, 2, &shape);
    }
    let mut kind = Vec::new();
    bytes(&mut kind, 1, &tensor);
    let mut value = Vec::new();
    bytes(&mut value, 1, name.as_bytes());
    bytes(&mut value, 2, &kind);
    value
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn number(out: &mut Vec<u8>, field: u64, value: u64) {
    varint(out, field << 3);
    varint(out, value);
}

fn bytes(out: &mut Vec<u8>, field: u64, value: &[u8]) {
    varint(out, field << 3 | 2);
    varint(out, value.len() as u64);
    out.extend_from_slice(value);
}
