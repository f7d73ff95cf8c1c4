"""Which files of a project may hold a key, over a table of names and contents."""

from __future__ import annotations

import base64
import json
import random
import string

import pytest

from orchestrator.config.code.key_files import has_key, is_named_like_key

_random = random.Random(7)


def some(length: int, letters: str = string.ascii_letters + string.digits) -> str:
    """Random letters, so that this file holds no key."""
    return "".join(_random.choices(letters, k=length))


def digits(length: int) -> str:
    return some(length, "0123456789abcdef")


def base(length: int) -> str:
    return some(length, string.ascii_letters + string.digits + "+/")


def block(kind: str) -> str:
    lines = "\n".join(base(64) for _ in range(5))
    return f"-----BEGIN {kind}-----\n{lines}\n-----END {kind}-----\n"


AWS = some(16, string.ascii_uppercase + "234567")
NEPTUNE = base64.b64encode(b'{"api_address":"https://app.example.org","api_key":"abc"}').decode()
PRIVATE = "PRIVATE " + "KEY"

KEYS = {
    # Passwords that people choose.
    "words.py": 'password = "correcthorsebattery"\n',
    "argument.py": 'connect(host="db", user="me", password="correcthorsebattery")\n',
    "mapping.py": 'DB = {"user": "me", "password": "hunter2hunter"}\n',
    "camel.js": 'const config = { dbPassword: "correcthorsebattery" };\n',
    "arrow.php": "$db = ['password' => 'correcthorsebattery'];\n",
    "address.py": 'url = "postgresql://me:hunterhunter@db.example.org/x"\n',
    "cell.ipynb": json.dumps({"cells": [{"source": ['password = "correcthorsebattery"\n']}]}),
    "export.sh": "export POSTGRES_PASSWORD=hunterhunter\n",
    "option.sh": "mysql --user=me --password=hunterhunter db\n",
    "prefix.sh": "PGPASSWORD=hunterhunter psql -h db\n",
    "notes.txt": "POSTGRES_PASSWORD=hunterhunter\n",
    "db.yaml": "db:\n  user: me\n  password: correcthorsebattery\n",
    "compose.yml": "environment:\n  POSTGRES_PASSWORD: hunterhunter\n  DB_PASS: hunter2\n",
    "phrase.json": '{"db": {"password": "correct horse battery staple"}}',
    "db.toml": '[db]\npassword = "swordfishes"\n',
    "smtp.ini": "[smtp]\npassword = swordfishes\n",
    "smtp.cfg": "passwd: letmeinplease\n",
    "Dockerfile": "FROM x\nENV MYSQL_ROOT_PASSWORD=hunterhunter\n",
    "spring.properties": "spring.datasource.password=hunterhunter\n",
    "maven.xml": "<server><username>me</username><password>correcthorsebattery</password></server>\n",
    "pip.cfg": f"index-url = https://me:{some(20)}@pypi.example.org/simple\n",
    # Issued keys, in files of any kind.
    "stripe.py": f'stripe.api_key = "sk_live_{some(24)}"\n',
    "stripe.txt": f"rk_live_{some(24)}\n",
    "github.txt": f"github_pat_{some(22)}_{some(59)}\n",
    "github.md": f"ghp_{some(36)}\n",
    "github.lock": f"# gho_{some(36)}\n",
    "github.csv": f"name,value\nme,ghs_{some(36)}\n",
    "gitlab.txt": f"glpat-{some(20)}\n",
    "gitlab-runner": f"glrt-{some(20)}\n",
    "slack.txt": f"xoxb-{some(12, string.digits)}-{some(12, string.digits)}-{some(24)}\n",
    "slack-app.txt": f"xapp-1-A{some(10)}-{some(13, string.digits)}-{digits(64)}\n",
    "slack.py": f'URL = "https://hooks.slack.com/services/T{some(8)}/B{some(8)}/{some(24)}"\n',
    "openai.py": f'client = OpenAI(api_key="sk-proj-{some(40)}-{some(40)}")\n',
    "openai.txt": f"sk-{some(20)}T3BlbkFJ{some(20)}\n",
    "openai.md": f"Run with `OPENAI_API_KEY=sk-{some(48)}`\n",
    "anthropic.py": f'key = "sk-ant-api03-{some(40)}-{some(30)}_{some(20)}AA"\n',
    "hub.txt": f"hf_{some(34)}\n",
    "google.js": f'const k = "AIza{some(35)}";\n',
    "google.txt": f"ya29.{some(80)}\n",
    "google.py": f'CLIENT = "GOCSPX-{some(28)}"\n',
    "google.json": json.dumps({"type": "service_account", "private_key": block(PRIVATE)}),
    "aws": f"aws_access_key_id = AKIA{AWS}\naws_secret_access_key = {base(40)}\n",
    "aws.py": f'aws_secret_access_key = "{some(40)}"\n',
    "aws.txt": f"ASIA{AWS}\n",
    "azure.txt": f"DefaultEndpointsProtocol=https;AccountName=lab;AccountKey={base(86)}==;\n",
    "azure.py": f'c = "Endpoint=sb://x.example.org/;SharedAccessKeyName=R;SharedAccessKey={base(43)}="\n',
    "npm.txt": f"npm_{some(36)}\n",
    "pypi.txt": f"pypi-AgEIcHlwaS5vcmc{some(120)}\n",
    "jwt.txt": f"eyJhbGciOiJIUzI1NiJ9.eyJ{some(60)}.{some(43)}\n",
    "rsa.txt": block(f"RSA {PRIVATE}"),
    "encrypted.txt": block(f"ENCRYPTED {PRIVATE}"),
    "pgp.txt": block(f"PGP {PRIVATE} BLOCK").replace("\n", "\n\nVersion: 1\n\n", 1),
    "wandb.py": f'wandb.login(key="{digits(40)}")\n',
    "wandb2.py": f'wandb.login(key="wandb_v1_{some(77)}")\n',
    "environ.py": f'os.environ["WANDB_API_KEY"] = "{digits(40)}"\n',
    "wandb.sh": f"wandb login {digits(40)}\n",
    "wandb2.sh": f"export WANDB_API_KEY=wandb_v1_{some(77)}\n",
    "docker.txt": f"dckr_pat_{some(27)}\n",
    "sendgrid.txt": f"SG.{some(22)}.{some(43)}\n",
    "digitalocean.txt": f"dop_v1_{digits(64)}\n",
    "groq.txt": f"gsk_{some(52)}\n",
    "replicate.txt": f"r8_{some(37)}\n",
    "shopify.txt": f"shpat_{digits(32)}\n",
    "linear.txt": f"lin_api_{some(40)}\n",
    "age.txt": f"AGE-SECRET-KEY-1{some(58, string.ascii_uppercase + string.digits)}\n",
    "neptune.py": f'TOKEN = "{NEPTUNE}"\n',
    "comet.py": f'Experiment(api_key="{some(25)}")\n',
    "bearer.py": f'headers = {{"Authorization": "Bearer {some(40)}"}}\n',
    "env.R": f'Sys.setenv(API_KEY = "{some(32)}")\n',
    "api.yaml": f"api_key: {digits(32)}\n",
    "tests/conftest.py": f'TOKEN = "ghp_{some(36)}"\n',
}
NO_KEYS = {
    # Words of language models.
    "tokens.json": json.dumps({"<pad>": 0, "password": 1, "secret": 2, "api_key": 4, "sk": 5, "hf_": 6}),
    "vocab.txt": "[PAD]\npassword\nsecret\n##token\napi\n_key\npasswd\nsk-\nkey=value\n",
    "vocab.json": json.dumps({"password": "pwd", "secret": "geheim", "token": "Zeichen"}),
    "merges.txt": "#version: 0.2\npass word\nsec ret\ntok en\n",
    "special_tokens_map.json": json.dumps({"bos_token": "<|begin_of_text|>", "unk_token": "<unk>"}),
    "added_tokens.json": json.dumps({"<|endoftext|>": 151643, "<|secret|>": 151644}),
    "tokenizer_config.json": json.dumps({"pad_token": "<|endoftext|>", "auth_token": None}),
    "model.yaml": 'eos_token: "</s>"\nmax_tokens: 1024\ntoken: gpt2\ntokens_per_batch: 100000000\n',
    # Locks and checksums.
    "poetry.lock": f'name = "keyring"\nhash = "sha256:{digits(64)}"\ncontent-hash = "{digits(64)}"\n',
    "uv.lock": f'name = "python-secrets"\nurl = "https://x.example.org/{digits(60)}/secrets.tar.gz"\n',
    "package-lock.json": json.dumps({"js-tokens": {"integrity": f"sha512-{base(86)}=="}}),
    "yarn.lock": f"js-tokens@^4:\n  integrity sha512-{base(86)}==\n  resolved x#{digits(40)}\n",
    "Cargo.lock": f'name = "secret-service"\nchecksum = "{digits(64)}"\n',
    "conda-lock.yml": f"- name: keyutils\n  hash:\n    md5: {digits(32)}\n    sha256: {digits(64)}\n",
    "requirements.txt": f"keyring==25 --hash=sha256:{digits(64)}\nwandb @ git+https://x/wandb@{digits(40)}\n",
    "hashes.csv": "\n".join(f"{digits(40)},{digits(64)}" for _ in range(9)),
    "sums.sha1": f"{digits(40)}  model.pt\n",
    "commit.txt": f"commit {digits(40)}\nkey: obs\n",
    "dvc.yaml": f"outs:\n- md5: {digits(32)}\n  path: keys.npy\n",
    "metadata.json": json.dumps({"wandb": {"git": {"commit": digits(40)}}, "run": "1abc2def"}),
    "ids.txt": "\n".join(f"{digits(8)}-{digits(4)}-{digits(4)}-{digits(12)}" for _ in range(9)),
    "ids.json": json.dumps({"key": f"{digits(8)}-{digits(4)}-{digits(12)}", "run_id": digits(16)}),
    "image.yaml": f"image: docker://python:3.11-slim@sha256:{digits(64)}\n",
    # Pictures, pages and styles.
    "picture.ipynb": json.dumps({"outputs": [{"data": {"image/png": base(8000)}}], "source": ["plot(x)\n"]}),
    "prompt.ipynb": json.dumps({"source": ['password = getpass("Password: ")\n', "wandb.login()\n"]}),
    "style.css": f'[type="password"] {{}}\n.secret {{background:url(data:image/png;base64,{base(900)})}}\n',
    "theme.css": ".password::placeholder,\n.pass:hover { --token: #aabbcc; }\n",
    "form.html": '<label for="password">Password: </label><input type="password" name="password" value="">\n',
    # Prose.
    "docs.md": "The password: never share it. `password=...` or `--password PASSWORD`\n",
    "values.md": '| `password` | string |\n\npassword = "your-password"\nexport API_KEY=<your key>\n',
    "docs.rst": "password : str\n    The password to use.\ntoken : str, optional\n",
    "README.md": "Use `HF_TOKEN=hf_...`; keys begin with sk-ant- or ghp_. export WANDB_API_KEY=...\n",
    "address.md": "Connect with `postgresql://user:password@localhost:5432/db`.\n",
    "names.md": "sk-learn-contrib-extra, task-masked-language-modelling-and-more-of-it\n",
    # Code.
    "login.py": "def login(user: str, password: str, *, token: str) -> None:\n    password = p\n",
    "args.py": 'add_argument("--password", help="password of the data base")\npassword = args.password\n',
    "environ.py": 'password = os.environ["PASSWORD"]\napi_key = os.getenv("API_KEY")\n',
    "model.py": "class User(BaseModel):\n    password: SecretStr\n    token: Optional[str] = None\n",
    "errors.py": 'ERRORS = {"password": "Enter your password"}\nPASSWORD = "password"\n',
    "django.py": 'widgets = {"password": forms.PasswordInput}\npassword = CharField(max_length=128)\n',
    "page.js": 'const password = document.getElementById("password").value;\nlet token = getToken();\n',
    "types.ts": "interface Login { password: string; apiKey: string; }\nf = (secret: Uint8Array) => 1\n",
    "flags.go": 'Password string `json:"password"`\npassword := flag.String("password", "", "of the user")\n',
    "lexer.c": "static const char *password = NULL;\nint token = TOKEN_END; key = KEY_ENTER;\n",
    "jax.py": "key, subkey = jax.random.split(key)\nrng_key = random.key(42)\n",
    "hub.py": "hf_model_name_or_path_for_training = 1\nnpm_config_registry_of_it = 2\n",
    "names.py": "lin_api_version = 3\nr8_quantized_weights = load()\nsg = SG.build_graph()\n",
    "words.py": 'KEYS = ["obs"]\nTOKEN = re.compile(r"(?P<token>\\w+)")\nSECRET_WORD = "abracadabra"\n',
    "shell.sh": 'cd "$PWD"; PWD=$(pwd)\npassword=$1\nread -s password\nTOKEN=$(cat ~/.token)\n',
    "rules.mk": "PASSWORD ?= $(shell cat pw)\nTOKEN := $(TOKEN)\n",
    "schema.sql": "CREATE TABLE users (id INT, password VARCHAR(255) NOT NULL, token TEXT);\n",
    "study.py": 'create_study(storage="mysql://optuna:optuna123@localhost/x")\n',
    # Settings without a value, or with names only.
    "games.yaml": "key: KeyCorridorS3R1MiniGridEnv12\nsecret: SecretGame-v0\naccess_token: bert-base-v2\n",
    "names.yaml": "api_key: OPENAI_API_KEY_1\nauth_token: env.WANDB_API_KEY1\n",
    "keys.yaml": "keys: [obs, action]\nin_keys: observation\nprimary_key: id\nforeign_key: user_id\n",
    "conf.yaml": "api_key: ${oc.env:WANDB_API_KEY}\npassword: null\npassword_file: /run/secrets/db\n",
    "ci.yml": "TOKEN: ${{ secrets.GITHUB_TOKEN }}\npermissions:\n  id-token: write\n",
    "compose.yml": "POSTGRES_PASSWORD: ${POSTGRES_PASSWORD}\nDEFAULT_PASSWORD: postgres\n",
    "cluster.yaml": "valueFrom:\n  secretKeyRef:\n    name: db-login\n    key: password\n",
    "chart.yaml": 'existingSecret: ""\nauth:\n  enabled: true\n  rootPassword: ""\n',
    "values.yaml": 'password: changeme\napi_key: YOUR_API_KEY\ntoken: <token>\nsecret: "********"\n',
    ".env.example": "PASSWORD=changeme\nAPI_KEY=your_api_key_here\nTOKEN=xxxxxxxx\n",
    "openapi.yaml": "password:\n  type: string\n  format: password\nscheme: bearer\n",
    "schema.json": json.dumps({"password": {"type": "string"}, "required": ["password", "api_key"]}),
    "alembic.ini": "sqlalchemy.url = driver://user:pass@localhost/dbname\n",
    "passes.yaml": "passes: 3\npassword_policy: strict\nnum_keys: 8\nauth: kerberos\nbypass: true\n",
    "urls.yaml": "url: https://x.example.org:8080/x@2\nssh: ssh://git@x.example.org/x\n",
    "home.xml": '<key name="home" qpos="0 0 1.4 1"/>\n<keyframe><key time="0"/></keyframe>\n',
    # Made up for tests, or words of a language.
    "test_login.py": 'client.post("/login", data={"user": "a", "password": "wrongwrong"})\n',
    "tests/test.yaml": "user: alice\npassword: alicealice1\n",
    "fixtures/user.json": json.dumps({"user": "alice", "password": "alice-in-wonderland"}),
    "i18n.json": json.dumps({"password": "Password", "forgot_password": "Forgot your password?"}),
    "locales/sv.json": json.dumps({"login": {"password": "inloggningsord", "api_key": "API-nyckel"}}),
    # Public halves.
    "known_hosts.txt": f"host ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{base(43)}\n",
    "id.pub": f"ssh-rsa AAAAB3NzaC1yc2E{base(300)} me@host\n",
    "server.crt": block("CERTIFICATE"),
    "key.asc": block("PGP PUBLIC KEY BLOCK"),
}


@pytest.mark.parametrize("name", KEYS)
def test_a_file_with_a_key_is_found(name: str) -> None:
    assert not is_named_like_key(name)  # the content decides
    assert has_key(name, KEYS[name].encode())


@pytest.mark.parametrize("name", NO_KEYS)
def test_a_file_without_a_key_is_taken(name: str) -> None:
    assert not is_named_like_key(name)
    assert not has_key(name, NO_KEYS[name].encode())


@pytest.mark.parametrize(
    "text", ["-----BEGIN " + "PRIVATE KEY" * 90_000, "Bearer " * 140_000, "key: " * 200_000]
)
def test_a_long_text_is_read_in_time(text: str) -> None:
    """Without an answer in proportion to its length this takes hours."""
    assert not has_key("a.py", text.encode())
