//! The instructions of one method as a graph, and what they call.

use noak::error::DecodeError;
use noak::reader::attributes::{Code, RawInstruction};
use noak::reader::cpool::{self, ConstantPool, Item};

use crate::bytecode::counted::{Counting, Does};
use crate::bytecode::flow::Edge;

/// A method longer than this is none: the JVM's limit (JVM specification 4.7.3), in bytes.
const MAX_BYTES: usize = 65_535;

/// A method by the names that a call has for it, in the JVM's spelling (`java/lang/Object`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Target {
    pub(crate) class: String,
    pub(crate) name: String,
    pub(crate) descriptor: String,
}

/// How a call finds its method.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum How {
    /// The named one: static, private, of the parent, a constructor, the body of a lambda.
    Exact,
    /// That of the object's class.
    Virtual,
    /// By `invokedynamic`, of which only the bootstrap method is known.
    Dynamic,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Call {
    pub(crate) target: Target,
    pub(crate) how: How,
    /// Whether it is the body of a lambda, which may run later, or never.
    pub(crate) is_later: bool,
}

/// The body of a method.
#[derive(Debug, Default)]
pub(crate) struct Body {
    /// Number of instructions that the first one leads to; the first is number 0.
    pub(crate) instructions: usize,
    /// From instruction to instruction, and how.
    pub(crate) edges: Vec<(u32, u32, Edge)>,
    /// Instruction and what it calls.
    pub(crate) calls: Vec<(u32, Call)>,
    /// What instructions do to variables that count.
    counting: Counting,
}

/// One instruction as it is read.
struct Step {
    at: i64,
    /// Offsets in bytes from the beginning of the method.
    jumps: Vec<i64>,
    /// Where handlers begin of exceptions from here on.
    handlers: Vec<i64>,
    /// Whether the next instruction may follow.
    falls: bool,
    call: Option<Call>,
    does: Does,
}

/// Reads a body, or says what is wrong with it. `dynamic` is what each bootstrap method runs.
pub(crate) fn body(
    code: &Code<'_>,
    pool: &ConstantPool<'_>,
    dynamic: &[Option<Call>],
) -> Result<Body, String> {
    let mut steps = Vec::new();
    for instruction in code.raw_instructions() {
        let (at, instruction) = instruction.map_err(|error| error.to_string())?;
        if at.as_u32() as usize > MAX_BYTES {
            return Err(format!("a method has more than {MAX_BYTES} bytes"));
        }
        let at = i64::from(at.as_u32());
        let does = Does::of(&instruction, pool);
        let mut step =
            Step { at, jumps: Vec::new(), handlers: Vec::new(), falls: true, call: None, does };
        step.read(&instruction, pool, dynamic).map_err(|error| error.to_string())?;
        steps.push(step);
    }
    for handler in code.exception_handlers() {
        let start = i64::from(handler.start().as_u32());
        // One inside what it guards, as javac writes it for `synchronized`, is no loop.
        if (handler.start()..handler.end()).contains(&handler.handler()) {
            continue;
        }
        if let Ok(step) = steps.binary_search_by_key(&start, |step| step.at) {
            steps[step].handlers.push(i64::from(handler.handler().as_u32()));
        }
    }
    connect(&steps)
}

impl Body {
    /// How often a loop of these instructions runs, where a variable counts its rounds.
    pub(crate) fn rounds(&self, instructions: &[u32]) -> Option<u64> {
        self.counting.rounds(instructions)
    }
}

impl Step {
    fn read(
        &mut self,
        instruction: &RawInstruction<'_>,
        pool: &ConstantPool<'_>,
        dynamic: &[Option<Call>],
    ) -> Result<(), DecodeError> {
        use RawInstruction as R;
        match instruction {
            R::IfACmpEq { offset }
            | R::IfACmpNe { offset }
            | R::IfICmpEq { offset }
            | R::IfICmpGe { offset }
            | R::IfICmpGt { offset }
            | R::IfICmpLe { offset }
            | R::IfICmpLt { offset }
            | R::IfICmpNe { offset }
            | R::IfEq { offset }
            | R::IfGe { offset }
            | R::IfGt { offset }
            | R::IfLe { offset }
            | R::IfLt { offset }
            | R::IfNe { offset }
            | R::IfNonNull { offset }
            | R::IfNull { offset }
            // Comes back to the next instruction.
            | R::JSr { offset } => self.jump(i64::from(*offset)),
            R::JSrW { offset } => self.jump(i64::from(*offset)),
            R::Goto { offset } => self.only(i64::from(*offset)),
            R::GotoW { offset } => self.only(i64::from(*offset)),
            R::LookupSwitch(switch) => {
                self.only(i64::from(switch.default_offset()));
                switch.pairs().for_each(|pair| self.jump(i64::from(pair.offset())));
            }
            R::TableSwitch(switch) => {
                self.only(i64::from(switch.default_offset()));
                // Its iterator overflows behind the greatest key, and that key serves no program.
                let keys = i64::from(switch.high()) - i64::from(switch.low()) + 1;
                let keys = if switch.high() == i32::MAX { keys - 1 } else { keys };
                let keys = usize::try_from(keys).unwrap_or(0);
                switch.pairs().take(keys).for_each(|pair| self.jump(i64::from(pair.offset())));
            }
            R::AReturn
            | R::AThrow
            | R::DReturn
            | R::FReturn
            | R::IReturn
            | R::LReturn
            | R::Return
            | R::Ret { .. }
            | R::RetW { .. } => self.falls = false,
            R::InvokeVirtual { index } => {
                let method = pool.get(*index)?;
                let target = target(pool, method.class, method.name_and_type)?;
                self.call = Some(Call { target, how: How::Virtual, is_later: false });
            }
            R::InvokeInterface { index, .. } => {
                let method = pool.get(*index)?;
                let target = target(pool, method.class, method.name_and_type)?;
                self.call = Some(Call { target, how: How::Virtual, is_later: false });
            }
            R::InvokeSpecial { index } | R::InvokeStatic { index } => {
                let target = match pool.get(*index)? {
                    Item::MethodRef(method) => target(pool, method.class, method.name_and_type)?,
                    Item::InterfaceMethodRef(method) => {
                        target(pool, method.class, method.name_and_type)?
                    }
                    _ => return Ok(()),
                };
                self.call = Some(Call { target, how: How::Exact, is_later: false });
            }
            R::InvokeDynamic { index } => {
                let number = usize::from(pool.get(*index)?.bootstrap_method_attr);
                self.call = dynamic.get(number).cloned().flatten();
            }
            _ => {}
        }
        Ok(())
    }

    fn jump(&mut self, by: i64) {
        self.jumps.push(self.at + by);
    }

    fn only(&mut self, by: i64) {
        self.falls = false;
        self.jump(by);
    }
}

pub(crate) fn target<'input>(
    pool: &ConstantPool<'input>,
    class: cpool::Index<cpool::Class<'input>>,
    named: cpool::Index<cpool::NameAndType<'input>>,
) -> Result<Target, DecodeError> {
    let named = pool.retrieve(named)?;
    Ok(Target {
        class: pool.retrieve(class)?.name.display().to_string(),
        name: named.name.display().to_string(),
        descriptor: named.descriptor.display().to_string(),
    })
}

/// The graph of what the first instruction leads to.
fn connect(steps: &[Step]) -> Result<Body, String> {
    let index = |at: i64| {
        let found = steps.binary_search_by_key(&at, |step| step.at);
        found.map_err(|_| format!("a jump to {at}, where no instruction begins"))
    };
    let mut numbers: Vec<Option<u32>> = vec![None; steps.len()];
    let mut body = Body::default();
    let mut waiting = Vec::new();
    let mut number_of = |step: usize, waiting: &mut Vec<usize>, known: &mut usize| {
        *numbers[step].get_or_insert_with(|| {
            waiting.push(step);
            *known += 1;
            (*known - 1) as u32
        })
    };
    if steps.is_empty() {
        return Err("a method without instructions".to_owned());
    }
    number_of(0, &mut waiting, &mut body.instructions);
    while let Some(step) = waiting.pop() {
        let from = number_of(step, &mut waiting, &mut body.instructions);
        let mut next: Vec<(usize, Edge)> = Vec::new();
        for jump in &steps[step].jumps {
            next.push((index(*jump)?, Edge::Goes));
        }
        for handler in &steps[step].handlers {
            next.push((index(*handler)?, Edge::Raises));
        }
        if steps[step].falls {
            if step + 1 == steps.len() {
                return Err("a method that runs past its end".to_owned());
            }
            next.push((step + 1, Edge::Goes));
        }
        next.sort_unstable();
        next.dedup_by_key(|(next, _)| *next);
        for (next, edge) in next {
            let to = number_of(next, &mut waiting, &mut body.instructions);
            body.edges.push((from, to, edge));
        }
        if let Some(call) = &steps[step].call {
            body.calls.push((from, call.clone()));
        }
    }
    let does = steps.iter().zip(&numbers).map(|(step, number)| (*number, step.does));
    body.counting = Counting::new(&does.collect::<Vec<_>>(), &body.edges);
    Ok(body)
}
