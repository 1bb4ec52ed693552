//! Models that are served by a server of a test's own, on a machine of its own.

use crate::stand_in::Running;
use crate::support::{root, weft};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use weft_tests::free_port;

const PATIENCE: Duration = Duration::from_secs(120);

/// Keeps the GPU busy for 4 ms, and 2 ms for each request: 6, 8, 12 and 20 ms for batches of 1 to 8.
pub(crate) const BUSY: &str = r#"
import ctypes

PTX = ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry {}() {{ ret; }}\n"

class Busy:
    inputs = [("x", "FP32", [-1, 4])]
    outputs = [("y", "FP32", [-1, 4])]
    max_batch = 8

    def load(self):
        self.cuda = ctypes.CDLL("libcuda.so.1")
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self.check(self.cuda.cuInit(0))
        self.check(self.cuda.cuDeviceGet(ctypes.byref(device), 0))
        self.check(self.cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
        self.check(self.cuda.cuCtxSetCurrent(context))
        self.kernels = {}

    def check(self, result):
        if result:
            raise RuntimeError(f"CUDA says {result}")

    def kernel(self, microseconds):
        if microseconds not in self.kernels:
            name = f"busy_{microseconds}us"
            module, function = ctypes.c_void_p(), ctypes.c_void_p()
            self.check(self.cuda.cuModuleLoadData(ctypes.byref(module), PTX.format(name).encode()))
            self.check(self.cuda.cuModuleGetFunction(ctypes.byref(function), module, name.encode()))
            self.kernels[microseconds] = function
        return self.kernels[microseconds]

    def predict(self, inputs):
        x = inputs["x"]
        kernel = self.kernel(1000 + 500 * len(x))
        for _ in range(4):
            self.check(self.cuda.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, None, None, None))
        self.check(self.cuda.cuCtxSynchronize())
        return {"y": x * 2}
"#;

/// Python and ONNX Runtime of an environment that all tests share, so that it is installed once.
pub(crate) fn environment() -> &'static [String; 2] {
    static ENVIRONMENT: OnceLock<[String; 2]> = OnceLock::new();
    ENVIRONMENT.get_or_init(|| {
        let folder = root().join("target/tmp/serve-state");
        let setup = Command::new(weft()).arg("setup").arg("--state").arg(&folder).output().expect("weft runs");
        assert!(setup.status.success(), "{}", String::from_utf8_lossy(&setup.stderr));
        let printed = String::from_utf8_lossy(&setup.stdout);
        let path = |name: &str| printed.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
        [path("Python"), path("ONNX Runtime")]
    })
}

/// A folder with a model and the configuration of a server that serves it.
pub(crate) fn prepare(folder: &Path, name: &str, model: &str, more: &str) {
    fs::write(folder.join(format!("{name}.py")), model).unwrap();
    let node = format!("[node]\npython = {:?}\n", environment()[0]);
    let model = format!("[[model]]\nname = {name:?}\nkind = \"python\"\npath = \"{name}.py\"\n{more}\n");
    fs::write(folder.join("weft.toml"), node + &model).unwrap();
}

/// A server that was started by hand.
pub(crate) struct Server {
    pub(crate) process: Running,
    /// Of the models and of what is asked about them.
    pub(crate) url: [String; 2],
}

impl Server {
    pub(crate) fn start(mut weft: Command, folder: &Path) -> Server {
        let [http, grpc, metrics] = [(); 3].map(|()| format!("127.0.0.1:{}", free_port()));
        weft.args(["up", "weft.toml", "--http", &http, "--grpc", &grpc, "--metrics", &metrics]);
        let talk = fs::File::create(folder.join("server.txt")).unwrap();
        let process = Running(weft.stderr(talk).stdin(Stdio::null()).spawn().unwrap());
        let until = Instant::now() + PATIENCE;
        while !ready(&http) {
            let said = || fs::read_to_string(folder.join("server.txt")).unwrap_or_default();
            assert!(Instant::now() < until, "waited in vain for the server, which said: {}", said());
            std::thread::sleep(Duration::from_millis(20));
        }
        Server { process, url: [format!("http://{http}"), format!("http://{metrics}")] }
    }

    pub(crate) fn words<'a>(&'a self, more: &[&'a str]) -> Vec<&'a str> {
        [more, &["--url", &self.url[0], "--server", &self.url[1]]].concat()
    }
}

fn ready(address: &str) -> bool {
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        write!(stream, "GET /v2/health/ready HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    ask().is_ok_and(|answer| answer.starts_with("HTTP/1.1 200"))
}
