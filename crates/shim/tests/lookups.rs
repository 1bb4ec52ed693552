//! How programs find functions: exactly what is wrapped is ours, whoever asks and however.

mod support;
use support::{Machine, library, run};

const EXPECTED: &str = "\
before the driver: nothing
dlerror: names it
new dlsym: weft
old dlsym: weft
not wrapped: driver
no function: nothing
another library's: nothing
export table: driver
cuMemAlloc 12000: weft
cuMemAlloc 2000: nothing
cuCtxDestroy 4000: weft
cuCtxDestroy 2000: driver
cuLaunchKernel per thread: weft
the same as without: 0
cuLaunchKernelEx 11000: nothing
itself: weft
cuInit: driver
nothing: nothing
malloc still works
";

#[test]
fn exactly_what_is_wrapped_is_replaced() {
    let machine = Machine::new();
    let program = machine.compile("lookups");
    let native = machine.native(&mut machine.command(&program)).stdout;
    let shared = machine.alone(&mut machine.command(&program)).stdout;
    assert_eq!(native, EXPECTED.replace("weft", "driver"));
    assert_eq!(shared, EXPECTED);
}

#[test]
fn the_next_function_is_the_callers_next() {
    let machine = Machine::new();
    let program = machine.compile("lookups");
    let nexts = machine.compile_with("nexts", &["-shared", "-fPIC"]);
    for order in [[library(), nexts.clone()], [nexts, library()]] {
        let preload = order.map(|path| path.display().to_string()).join(":");
        let ran = run(machine.command(&program).env("LD_PRELOAD", preload));
        assert_eq!((ran.stdout.as_str(), ran.code), (EXPECTED, Some(0)), "{}", ran.stderr);
    }
}
