"Packaging entry point: every value comes from settings.ini, edit there, not here."
from configparser import ConfigParser
from pathlib import Path
import setuptools

here = Path(__file__).parent
config = ConfigParser(delimiters=['='], interpolation=None)
config.read(here/'settings.ini', encoding='utf-8')
cfg = config['DEFAULT']
for o in 'lib_name version description author author_email min_python requirements'.split(): assert cfg.get(o), f'settings.ini: missing {o}'

setuptools.setup(
    name=cfg['lib_name'], version=cfg['version'], description=cfg['description'], keywords=cfg['keywords'],
    author=cfg['author'], author_email=cfg['author_email'], license='Apache-2.0', url=cfg['git_url'],
    packages=setuptools.find_packages(include=[cfg['lib_path'], cfg['lib_path']+'.*']),
    python_requires='>='+cfg['min_python'], install_requires=cfg['requirements'].split(),
    extras_require={'notebook': cfg['notebook_requirements'].split(), 'dev': (cfg['dev_requirements']+' '+cfg['notebook_requirements']).split(), 'docs': cfg['docs_requirements'].split()},
    long_description=(here/'README.md').read_text(encoding='utf-8'), long_description_content_type='text/markdown',
    classifiers=['Programming Language :: Python :: 3', 'Framework :: Jupyter'],
    zip_safe=False,
    package_data={cfg['lib_path']: ['static/*.js', 'static/recorded/*.json', 'pretrained/*/*.safetensors', 'pretrained/*/*.json', 'pretrained/*/*.jinja', 'py.typed']},
    entry_points={'console_scripts': [x.strip() for x in cfg['console_scripts'].split()], 'nbdev': [f"{cfg['lib_path']}={cfg['lib_path']}._modidx:d"]})
