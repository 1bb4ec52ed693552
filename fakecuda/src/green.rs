//! Green contexts: streams on a part of the SMs. A kernel on one takes as much longer as there are fewer SMs.

use crate::boundary::{In, Out};
use crate::code::{Code, Status};
use crate::context;
use crate::driver::{Handle, process};
pub(crate) use crate::objects::Green;
use crate::stream::Stream;

/// SMs of a GPU, and the least group of them.
pub(crate) const SMS: u32 = 132;
const GROUP: u32 = 8;

/// `CU_DEV_RESOURCE_TYPE_SM`.
const OF_SMS: u32 = 1;

/// `CUdevResource`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Resource {
    kind: u32,
    own: [u8; 92],
    sms: u32,
    rest: [u8; 44],
}

const _: () = assert!(size_of::<Resource>() == 144);

impl Resource {
    fn new(sms: u32) -> Resource {
        Resource { kind: OF_SMS, own: [0; 92], sms, rest: [0; 44] }
    }
}

pub(crate) fn cuDeviceGetDevResource(device: i32, out: Out<Resource>, kind: u32) -> Status {
    crate::driver::slot(device)?;
    if kind == OF_SMS { out.set(Resource::new(SMS)) } else { Err(Code::INVALID_VALUE) }
}

/// One group is all that is ever asked for.
pub(crate) fn cuDevSmResourceSplitByCount(
    some: Out<Resource>,
    groups: Out<u32>,
    all: In<Resource>,
    rest: Out<Resource>,
    _flags: u32,
    least: u32,
) -> Status {
    let all = all.get()?;
    let sms = least.max(GROUP).next_multiple_of(GROUP);
    if all.kind != OF_SMS || sms > all.sms || groups.get()? != 1 {
        return Err(Code::INVALID_VALUE);
    }
    rest.offer(Resource::new(all.sms - sms));
    some.set(Resource::new(sms))
}

/// A description is the number of SMs.
pub(crate) fn cuDevResourceGenerateDesc(out: Out<Handle>, resources: In<Resource>, count: u32) -> Status {
    let resource = resources.get()?;
    if count != 1 || resource.kind != OF_SMS || resource.sms == 0 {
        return Err(Code::INVALID_VALUE);
    }
    out.set(resource.sms as Handle)
}

pub(crate) fn cuGreenCtxCreate(out: Out<Handle>, description: Handle, device: i32, flags: u32) -> Status {
    let sms = u32::try_from(description).ok().filter(|sms| (1..=SMS).contains(sms)).ok_or(Code::INVALID_VALUE)?;
    if flags != 1 || crate::driver::refuses("parts") {
        return Err(Code::INVALID_VALUE);
    }
    let context = context::create(device, 0)?;
    let mut process = process()?;
    let handle = process.new_handle();
    process.greens.0.insert(handle, Green { context, device, sms });
    out.set(handle)
}

pub(crate) fn cuGreenCtxStreamCreate(out: Out<Handle>, green: Handle, flags: u32, priority: i32) -> Status {
    let mut process = process()?;
    let Green { context, device, sms } = *process.greens.get(green)?;
    if flags != 1 {
        return Err(Code::INVALID_VALUE);
    }
    let handle = process.new_handle();
    let stream = Stream { sms: Some(sms), ..Stream::new(context, device, flags, priority.clamp(-5, 0)) };
    process.streams.0.insert(handle, stream);
    out.set(handle)
}

pub(crate) fn cuCtxFromGreenCtx(out: Out<Handle>, green: Handle) -> Status {
    out.set(process()?.greens.get(green)?.context)
}
