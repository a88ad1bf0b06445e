//! Template rendering with a memory limit. The template engine itself has none:
//! `"a" * 100000000` uses no more of its fuel than `1 + 1`.
//!
//! Invariant: a template whose values or output exceed its budget fails before much more than
//! the budget is allocated. One byte of text counts 1, and so does each value, which takes about
//! 24 bytes. For this purpose, every instruction that builds a value is followed by a call that
//! charges the value's size, and all output goes through the formatter. A value can't grow after
//! it was charged: iterators are converted to lists, and namespaces can't be nested.

mod budget;

use std::collections::BTreeMap;

use minijinja::machinery::{
    CodeGenerator, Instruction, Instructions, Token, eval, make_string_output, parse, tokenize,
};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Rest, ValueKind, ValueOrKwargs};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, UndefinedBehavior, Value, filters};

use self::budget::{RenderBudget, invalid_operation_error, is_namespace, nested_namespace_error};

/// Name of the internal function that charges the budget of a rendering. Templates can't call the
/// function, because its name contains a dot.
const CHARGE: &str = "budget.charge";
const MULTIPLY: &str = "budget.multiply";
const CHECK_ATTRIBUTE: &str = "budget.check_attribute";

/// Filters that are not available, because their result may be much larger than their arguments and
/// prompts don't need them.
const REMOVED_FILTERS: [&str; 5] = ["format", "pprint", "batch", "slice", "chain"];
const REMOVED_FUNCTIONS: [&str; 1] = ["debug"];

/// Limits of one template rendering.
#[derive(Debug, Clone)]
pub struct TemplateLimits {
    /// Maximum number of template instructions that are executed.
    pub fuel: u64,
    /// Maximum number of bytes of text plus number of values that the template builds.
    pub budget: u64,
    /// Maximum nesting depth of calls and scopes while the template is rendered.
    pub recursion: usize,
}

/// Function that formats a value for the output of a template.
pub type FormatFn = fn(&Value) -> Result<String, Error>;

/// Renders a template with strict handling of undefined values and without escaping.
///
/// # Errors
/// Fails if the template is invalid or exceeds its limits.
pub fn render_within_limits(
    source: &str,
    values: Value,
    syntax: SyntaxConfig,
    (limits, format): (&TemplateLimits, FormatFn),
) -> Result<String, Error> {
    let (root, blocks) = compile_template(source, syntax)?;
    let environment = build_environment(limits, format);
    let mut text = String::new();
    let mut output = make_string_output(&mut text);
    eval(&environment, &root, values, &blocks, &mut output, AutoEscape::None)?;
    drop(output);
    Ok(text)
}

/// Checks that a template can be rendered within limits.
///
/// # Errors
/// Fails if a string or list is used with `*`, if a list is spread into arguments, or if the
/// source is not a valid template.
pub fn check_template_is_bounded(source: &str, syntax: &SyntaxConfig) -> Result<(), Error> {
    compile_template(source, syntax.clone()).map(|_| ())
}

/// Instructions of a compiled template and of its blocks.
type CompiledTemplate<'a> = (Instructions<'a>, BTreeMap<&'a str, Instructions<'a>>);

fn compile_template(source: &str, syntax: SyntaxConfig) -> Result<CompiledTemplate<'_>, Error> {
    reject_unbounded_constants(source, &syntax)?;
    let mut generator = CodeGenerator::new("<string>", source);
    generator.compile_stmt(&parse(source, "<string>", syntax)?);
    let (root, blocks) = generator.finish();
    let blocks = blocks.into_iter().map(|(name, block)| Ok((name, insert_budget_checks(block)?)));
    Ok((insert_budget_checks(root)?, blocks.collect::<Result<_, Error>>()?))
}

/// Rejects constant expressions that the compiler would evaluate without limits, such as the
/// product of a string and a large number.
fn reject_unbounded_constants(source: &str, syntax: &SyntaxConfig) -> Result<(), Error> {
    let (mut multiplies, mut has_text) = (false, false);
    for token in tokenize(source, false, syntax.clone()) {
        let (token, span) = token?;
        #[expect(
            clippy::wildcard_enum_match_arm,
            reason = "no other token can make a constant grow"
        )]
        match token {
            Token::VariableStart | Token::BlockStart => (multiplies, has_text) = (false, false),
            Token::Mul => multiplies = true,
            Token::Str(_) | Token::String(_) | Token::BracketOpen | Token::BraceOpen => {
                has_text = true;
            }
            _ => {}
        }
        if multiplies && has_text {
            let detail = format!(
                "line {}: `*` is for numbers only and can't be used in one tag with a string or a list",
                span.start_line
            );
            return Err(Error::new(ErrorKind::InvalidOperation, detail));
        }
    }
    Ok(())
}

fn build_environment<'a>(limits: &TemplateLimits, format: FormatFn) -> Environment<'a> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    // Makes errors name the undefined expression.
    environment.set_debug(true);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_fuel(Some(limits.fuel));
    environment.set_recursion_limit(limits.recursion);
    for name in REMOVED_FILTERS {
        environment.remove_filter(name);
    }
    for name in REMOVED_FUNCTIONS {
        environment.remove_global(name);
    }
    let budget = RenderBudget::new(limits.budget);
    let budget_handle = budget.clone();
    environment.set_formatter(move |output, _, value| {
        let text = format(value)?;
        budget_handle.spend(text.len() as u64)?;
        output.write_str(&text).map_err(Error::from)
    });
    let budget_handle = budget.clone();
    environment.add_function(CHARGE, move |value: ValueOrKwargs| {
        budget_handle.charge_value(value.into_value())
    });
    environment.add_function(CHECK_ATTRIBUTE, |value: Value| match is_namespace(&value) {
        true => Err(nested_namespace_error()),
        false => Ok(value),
    });
    environment.add_function(MULTIPLY, |left: Value, right: Value| multiply(&left, &right));
    let bounded_filters: [(&'static str, Value, OutputSizeBound); 11] = [
        ("replace", Value::from_function(filters::replace), output_size_bound_of_replace),
        ("join", Value::from_function(filters::join), output_size_bound_of_join),
        ("indent", Value::from_function(filters::indent), output_size_bound_of_indent),
        ("list", Value::from_function(filters::list), split_part_count_bound),
        ("split", Value::from_function(filters::split), split_part_count_bound),
        ("lines", Value::from_function(filters::lines), split_part_count_bound),
        ("sort", Value::from_function(filters::sort), split_part_count_bound),
        ("unique", Value::from_function(filters::unique), split_part_count_bound),
        ("map", Value::from_function(filters::map), split_part_count_bound),
        ("select", Value::from_function(filters::select), split_part_count_bound),
        ("reject", Value::from_function(filters::reject), split_part_count_bound),
    ];
    for (name, filter, size_bound) in bounded_filters {
        let filter_budget = budget.clone();
        environment.add_filter(
            name,
            move |state: &mut minijinja::State<'_, '_>, args: Rest<ValueOrKwargs>| {
                let args = args.into_values();
                filter_budget.spend(size_bound(&args))?;
                filter.call(state, &args)
            },
        );
    }
    environment
}

/// Function that returns an upper bound for the output of a filter in bytes, given its arguments.
type OutputSizeBound = fn(&[Value]) -> u64;

fn text_byte_count(value: Option<&Value>) -> u64 {
    value.map_or(0, |value| match value.as_str() {
        Some(text) => text.len() as u64,
        None => value.to_string().len() as u64,
    })
}

fn output_size_bound_of_replace(args: &[Value]) -> u64 {
    let match_count = match (args.first().and_then(Value::as_str), args.get(1)) {
        (Some(text), Some(from)) => text.matches(&*from.to_string()).count() as u64,
        _ => 0,
    };
    text_byte_count(args.first())
        .saturating_add(match_count.saturating_mul(text_byte_count(args.get(2))))
}

fn output_size_bound_of_join(args: &[Value]) -> u64 {
    let items = args.first().and_then(Value::len).unwrap_or(0) as u64;
    let separators = args.iter().skip(1).map(|other| text_byte_count(Some(other)));
    let separator_bytes: u64 = separators.sum();
    text_byte_count(args.first()).saturating_add(items.saturating_mul(separator_bytes))
}

fn output_size_bound_of_indent(args: &[Value]) -> u64 {
    let lines = args.first().and_then(Value::as_str);
    let lines = lines.map_or(1, |text| text.split('\n').count() as u64);
    let keyword_arg = |name: &str| args.last().and_then(|last| last.get_attr(name).ok());
    let width = args.get(1).and_then(Value::as_usize);
    let width = width.or_else(|| keyword_arg("width")?.as_usize()).unwrap_or(4) as u64;
    text_byte_count(args.first()).saturating_add(lines.saturating_mul(width))
}

/// Returns an upper bound of the number of values that a text is split into.
fn split_part_count_bound(args: &[Value]) -> u64 {
    let text = args.first().and_then(Value::as_str);
    text.map_or(0, |text| text.len() as u64)
}

fn multiply(left: &Value, right: &Value) -> Result<Value, Error> {
    let not_a_number = || Error::new(ErrorKind::InvalidOperation, "`*` is for numbers only");
    let is_number = |value: &Value| value.kind() == ValueKind::Number;
    if !is_number(left) || !is_number(right) {
        return Err(not_a_number());
    }
    if let (Some(left), Some(right)) = (left.as_i64(), right.as_i64()) {
        return left.checked_mul(right).map(Value::from).ok_or_else(not_a_number);
    }
    let to_float = |value: &Value| f64::try_from(value.clone());
    Ok(Value::from(to_float(left)? * to_float(right)?))
}

/// Inserts an instruction that charges the budget after each instruction that builds a value. Raw
/// text is emitted as a value, so that it goes through the formatter.
fn insert_budget_checks<'a>(mut instructions: Instructions<'a>) -> Result<Instructions<'a>, Error> {
    let mut positions = Vec::new();
    let mut next = 0;
    while let Some(instruction) = instructions.get(positions.len() as u32) {
        check_instruction_allowed(instruction)?;
        positions.push(next);
        next += if matches!(instruction, Instruction::SetAttr(_)) {
            4
        } else if may_build_larger_value(instruction)
            || matches!(instruction, Instruction::EmitRaw(_))
        {
            2
        } else {
            1
        };
    }
    positions.push(next);
    let target = |at: u32| positions.get(at as usize).copied().unwrap_or(at);
    let mut output = Instructions::new(instructions.name(), instructions.source());
    for at in 0..positions.len() as u32 {
        let line = instructions.get_line(at).unwrap_or(1);
        let line = u16::try_from(line).unwrap_or(u16::MAX);
        let Some(instruction) = instructions.get_mut(at) else {
            break;
        };
        let mut add = |instruction| output.add_with_line(instruction, line);
        let instruction = std::mem::replace(instruction, Instruction::Swap);
        let builds_value = may_build_larger_value(&instruction);
        #[expect(clippy::wildcard_enum_match_arm, reason = "all other instructions are unchanged")]
        match instruction {
            Instruction::EmitRaw(text) => {
                add(Instruction::LoadConst(Value::from(text)));
                add(Instruction::Emit)
            }
            // The value is below the namespace on the stack.
            set_attr @ Instruction::SetAttr(_) => {
                add(Instruction::Swap);
                add(Instruction::CallFunction(CHECK_ATTRIBUTE, Some(1)));
                add(Instruction::Swap);
                add(set_attr)
            }
            Instruction::Mul => add(Instruction::CallFunction(MULTIPLY, Some(2))),
            Instruction::Iterate(to) => add(Instruction::Iterate(target(to))),
            Instruction::Jump(to) => add(Instruction::Jump(target(to))),
            Instruction::JumpIfFalse(to) => add(Instruction::JumpIfFalse(target(to))),
            Instruction::JumpIfFalseOrPop(to) => add(Instruction::JumpIfFalseOrPop(target(to))),
            Instruction::JumpIfTrueOrPop(to) => add(Instruction::JumpIfTrueOrPop(target(to))),
            Instruction::BuildMacro(name, to, flags) => {
                add(Instruction::BuildMacro(name, target(to), flags))
            }
            other => add(other),
        };
        if builds_value {
            add(Instruction::CallFunction(CHARGE, Some(1)));
        }
    }
    Ok(output)
}

/// Rejects spreading a list into arguments, which would push an unlimited number of values in one
/// step, and `cycle` without arguments, which panics in the template engine.
fn check_instruction_allowed(instruction: &Instruction<'_>) -> Result<(), Error> {
    if matches!(instruction, Instruction::UnpackLists(_)) {
        return Err(invalid_operation_error("a list can't be spread into arguments"));
    }
    if matches!(instruction, Instruction::CallMethod("cycle", Some(1))) {
        return Err(invalid_operation_error("`cycle` needs an argument"));
    }
    Ok(())
}

/// Returns whether the result of an instruction may be larger than its operands.
fn may_build_larger_value(instruction: &Instruction<'_>) -> bool {
    matches!(
        instruction,
        Instruction::Add
            | Instruction::StringConcat
            | Instruction::BuildList(_)
            | Instruction::BuildTuple(_)
            | Instruction::BuildMap(_)
            | Instruction::MergeKwargs(_)
            | Instruction::Slice
            | Instruction::ApplyFilter(..)
            | Instruction::CallFunction(..)
            | Instruction::CallMethod(..)
            | Instruction::CallObject(_)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render_with_test_values(source: &str) -> Result<String, String> {
        let limits = TemplateLimits { fuel: 100_000, budget: 1 << 20, recursion: 32 };
        let format = |value: &Value| Ok(value.to_string());
        let values = minijinja::context! { items => ["a", "b"], text => "x\ny", n => 3 };
        let syntax = SyntaxConfig::default();
        render_within_limits(source, values, syntax, (&limits, format))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn ordinary_templates_render() {
        for (source, expect) in [
            ("plain", "plain"),
            ("{{ items|join(', ') }}!", "a, b!"),
            ("{{ items|join(d='-') }}", "a-b"),
            ("{{ text|replace('x', 'z')|indent(2) }}", "z\n  y"),
            ("{{ text|indent(width=1, first=true) }}", " x\n y"),
            ("{{ 'a' ~ n ~ [1, {'k': n}] }}", "a3[1, {'k': 3}]"),
            ("{{ n * 2 + 1 }} {{ n * 0.5 }}", "7 1.5"),
            (
                "{% for i in items %}{% if i == 'a' %}A{% else %}{{ i|upper }}{% endif %}{% endfor %}",
                "AB",
            ),
            (
                "{% set ns = namespace(n=0) %}{% for i in items %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}",
                "2",
            ),
            (
                "{% macro m(a, b='!') %}{{ a ~ b }}{% endmacro %}{{ m('x') }}{{ m('y', '?') }}",
                "x!y?",
            ),
            ("{% set x %}a{{ n }}{% endset %}{{ x ~ x }}", "a3a3"),
            ("{{ items[0] and items[1] or 'no' }}", "b"),
            ("{{ items[1:] + [n] }} {{ range(3) }}", "['b', 3] [0, 1, 2]"),
            ("{{ dict(**{'a': 1}, b=n)|items }}", "[('a', 1), ('b', 3)]"),
            ("{{ items|zip(range(2)) }}", "[('a', 0), ('b', 1)]"),
            ("{{ missing|default('d') }}{{ '' if n == 4 }}", "d"),
            (
                "{% for i in [1, [2, [3]]] recursive %}{{ loop(i) if i is sequence else i }}{% endfor %}",
                "123",
            ),
        ] {
            assert_eq!(render_with_test_values(source).as_deref(), Ok(expect), "{source}");
        }
    }

    #[test]
    fn templates_over_their_render_budget_fail() {
        let doubled = |step: &str| {
            format!(
                "{{% set ns = namespace(x='aa') %}}{{% for i in range(40) %}}{{% set ns.x = {step} %}}{{% endfor %}}"
            )
        };
        for source in [
            doubled("ns.x ~ ns.x"),
            doubled("ns.x + ns.x"),
            doubled("[ns.x, ns.x]"),
            doubled("(ns.x, ns.x)"),
            doubled("{'a': ns.x, 'b': ns.x}"),
            doubled("dict(a=ns.x, b=ns.x)"),
            doubled("ns.x|replace('a', 'aaaaaaaa')"),
            doubled("ns.x|replace('', ns.x)"),
            doubled("[ns.x, ns.x]|join(ns.x)"),
            doubled("range(50000)|list + range(50000)|list"),
            "{{ text|indent(1000000000) }}".to_owned(),
            "{{ text|indent(width=1000000000) }}".to_owned(),
            "{{ range(100000)|join('0123456789') }}".to_owned(),
            "{{ range(100000)|map('replace', '1', '0123456789' ~ text)|list }}".to_owned(),
            "{% set x %}{% for i in range(9999) %}0123456789 0123456789 0123456789 0123456789 0123456789 0123456789 0123456789 0123456789 0123456789 0123456789 {% endfor %}{% endset %}".to_owned(),
            "{% set ns = namespace(x=[]) %}{% for i in range(9999) %}{% set ns.x = [ns.x] %}{% endfor %}".to_owned(),
            "{% set ns = namespace(x=[1]) %}{% for i in range(999) %}{% set ns.x = ns.x|zip %}{% endfor %}{{ ns.x }}".to_owned(),
            "{% set ns = namespace(x=[1]) %}{% for i in range(9999) %}{% set ns.x = ns.x[:] + [1] %}{% endfor %}{{ ns.x }}".to_owned(),
            // A list of many long strings.
            "{% set s = range(9999)|join %}{% set ns = namespace(x=[s]) %}{% for i in range(12) %}{% set ns.x = ns.x + ns.x %}{% endfor %}{{ ns.x|length }}".to_owned(),
            format!("{{% set x = range(99999) %}}{{{{ x|zip({}x) }}}}", "x, ".repeat(20)),
        ] {
            let error = render_with_test_values(&source).unwrap_err();
            let is_bounded = error.contains("too much text") || error.contains("too deep");
            assert!(is_bounded, "{source}: {error}");
        }
    }

    #[test]
    fn unbounded_template_constructs_are_rejected() {
        for source in [
            "{{ 'a' * 100000000 }}",
            "{{ text * 100000000 }}",
            "{{ ([1] * 100000000)|list }}",
            "{% set a = 100000000 * ('a') %}",
        ] {
            let error = render_with_test_values(source).unwrap_err();
            assert!(error.contains("`*` is for numbers only"), "{source}: {error}");
        }
        for (source, expect) in [
            ("{{ dict(*range(100000), *range(100000)) }}", "spread"),
            ("{% macro m() %}{% endmacro %}{{ m(*items) }}", "spread"),
            ("{% block b %}{{ text|replace(*items) }}{% endblock %}", "spread"),
            ("{{ n is divisibleby(*items) }}", "spread"),
            ("{% set a = namespace() %}{% set a.b = a %}{{ a }}", "namespace"),
            ("{% set a = namespace() %}{% set b = [a, a] %}", "namespace"),
            ("{% set a = namespace() %}{{ dict(a=a) }}", "namespace"),
            ("{% for i in items %}{{ loop.cycle() }}{% endfor %}", "cycle"),
        ] {
            let error = render_with_test_values(source).unwrap_err();
            assert!(error.contains(expect), "{source}: {error}");
        }
        for source in ["{{ '%999999999d'|format(1) }}", "{{ items|batch(999999999, 1)|list }}"] {
            assert!(render_with_test_values(source).unwrap_err().contains("filter"), "{source}");
        }
    }

    #[test]
    fn template_errors_name_their_line() {
        let error = render_with_test_values("a\nb {{ 'x' ~ 'y' }}\n{{ nothing }}").unwrap_err();
        assert!(error.contains(":3"), "{error}");
    }
}
