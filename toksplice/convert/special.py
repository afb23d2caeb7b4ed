"""Special tokens that rank files leave to the programs around them: name -> id."""

from __future__ import annotations

from collections.abc import Iterable

_LANGUAGES = (
    "en zh de es ru ko fr ja pt tr pl ca nl ar sv it id hi fi vi he uk el ms cs ro da hu ta no th ur hr bg lt la mi ml "
    "cy sk te fa lv bn sr az sl kn et mk br eu is hy ne mn bs kk sq sw gl mr pa si km sn yo so af oc ka be tg sd gu am "
    "yi lo uz fo ht ps tk nn mt sa lb my bo tl mg as tt haw ln ha ba jw su"
)


def numbered(first_id: int, names: Iterable[str]) -> dict[str, int]:
    """The names with consecutive ids."""
    return {name: first_id + at for at, name in enumerate(names)}


def reserved(group: str, numbers: Iterable[int]) -> list[str]:
    """Llama's reserved tokens, such as `<|vision_reserved_special_token_0|>`; the plain ones have no group."""
    prefix = f"{group}_" if group else ""
    return [f"<|{prefix}reserved_special_token_{number}|>" for number in numbers]


GPT2 = {"<|endoftext|>": 50_256}
CL100K = numbered(100_257, ["<|endoftext|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>"]) | {
    "<|endofprompt|>": 100_276
}
O200K = {"<|endoftext|>": 199_999, "<|endofprompt|>": 200_018}
CLAUDE = numbered(0, ["<EOT>", "<META>", "<META_START>", "<META_END>", "<SOS>"])
QWEN = numbered(151_643, ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *(f"<|extra_{at}|>" for at in range(205))])
QWEN3_6 = numbered(
    248_044,
    [
        *("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>"),
        *("<|box_start|>", "<|box_end|>", "<|quad_start|>", "<|quad_end|>", "<|vision_start|>", "<|vision_end|>"),
        *("<|vision_pad|>", "<|image_pad|>", "<|video_pad|>", "<tool_call>", "</tool_call>"),
        *("<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>"),
        *("<tool_response>", "</tool_response>", "<think>", "</think>", "<|audio_start|>", "<|audio_end|>"),
        *("<tts_pad>", "<tts_text_bos>", "<tts_text_eod>", "<tts_text_bos_single>", "<|audio_pad|>"),
    ],
)
LLAMA3 = numbered(
    128_000,
    [
        *("<|begin_of_text|>", "<|end_of_text|>", *reserved("", range(2)), "<|finetune_right_pad_id|>", "<|step_id|>"),
        *("<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>", "<|eot_id|>", "<|python_tag|>", "<|image|>"),
        *reserved("", range(2, 246)),
    ],
)
LLAMA4 = numbered(
    200_000,
    [
        *("<|begin_of_text|>", "<|end_of_text|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>"),
        *("<|header_start|>", "<|header_end|>", "<|eom|>", "<|eot|>", "<|step|>"),
        *reserved("text_post_train", range(6)),
        *("<|python_start|>", "<|python_end|>", "<|finetune_right_pad|>"),
        *reserved("text_post_train", range(8, 69)),
        *("<|image_start|>", "<|image_end|>", *reserved("vision", range(2))),
        *("<|tile_x_separator|>", "<|tile_y_separator|>", *reserved("vision", range(2, 6)), "<|image|>"),
        *(*reserved("vision", range(6, 7)), "<|patch|>", *reserved("vision", range(7, 1048))),
        *reserved("reasoning", range(8)),
        *("<|reasoning_thinking_start|>", "<|reasoning_thinking_end|>"),
        *reserved("", range(2048 - 1144)),
    ],
)
WHISPER = numbered(
    50_257,
    [
        *("<|endoftext|>", "<|startoftranscript|>", *(f"<|{code}|>" for code in _LANGUAGES.split())),
        *("<|translate|>", "<|transcribe|>", "<|startoflm|>", "<|startofprev|>", "<|nospeech|>", "<|notimestamps|>"),
        *(f"<|{at * 0.02:.2f}|>" for at in range(1501)),
    ],
)
