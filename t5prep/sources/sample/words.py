"""List the words of the sample's questions: one list per kind of slot, chosen without regard to quality.

A template names a slot by its key (`$noun`), so adding a word here needs no change anywhere else. A class of quality
never has words of its own in these lists: the classes differ in their kinds of sentences (`moves.py`), not in topics.
"""

_LISTS = {
    "lang": """
        Python Java JavaScript TypeScript C# C++ C Go Rust Ruby PHP Kotlin Swift Scala R MATLAB Perl Haskell Lua
        Dart Julia Elixir Erlang Clojure F# Groovy Fortran COBOL Bash PowerShell SQL""",
    "tag": """
        python java javascript typescript c# c++ c go rust ruby php kotlin swift scala r matlab perl haskell lua
        dart html css sql mysql postgresql sqlite mongodb redis django flask spring angular reactjs node.js express
        jquery android ios xcode docker kubernetes git linux windows macos regex json xml csv arrays string list
        dictionary loops functions recursion sorting multithreading async-await sockets http rest authentication
        oauth pandas numpy tensorflow keras opencv matplotlib ggplot2 dplyr excel vba unity3d opengl qt swing wpf
        winforms asp.net linq entity-framework hibernate maven gradle npm webpack babel unit-testing junit pytest
        selenium web-scraping""",
    "noun": """
        account address alarm album amount anchor animation answer archive argument article artist attachment author
        avatar badge balance banner basket batch battery bill block board book booking border bottle box branch
        bridge browser bucket budget buffer building bundle bus button cable cache calendar camera campaign
        candidate canvas card cart catalogue category cell certificate chain channel chapter chart check cinema
        circle city class client clock cloud cluster code collection colour column comment company component concert
        condition connection constant contact container content contract cookie copy corner country coupon course
        crate currency cursor customer cycle dashboard date deadline delivery department deposit device diagram
        dialog dictionary digit directory discount disk distance district document domain door draft drawer driver
        duration edge editor element email employee engine entity entry envelope event exam exchange expense export
        expression factory failure family farm feature feed field figure file filter flag flight floor folder font
        footer form forecast formula frame friend function fund gallery game garden gateway gradient grade graph
        grid group guest handle handler harbour header heading height history holiday hospital host hotel hour house
        icon image import index ingredient input insurance integer interval inventory invoice island issue item job
        journal journey key keyboard kitchen label ladder lake lamp language layer layout leader league lecture
        ledger length lesson letter level library licence light limit line link list loan location lock log login
        loop lottery machine magazine mailbox manager map margin marker market match matrix meal measurement meeting
        member memory menu merchant message meter method metric mirror mission mode model module month monitor
        mountain movie museum name network neighbour newsletter node note notification number object offer office
        option orchard order origin outlet output overlay owner package page painting pair panel parameter parcel
        parent park parser part partner passenger password patch path patient pattern payment pencil percentage
        permission person phone photo phrase picture pipe pixel place plan planet plant platform player playlist
        plugin pointer policy poll pool port portfolio position post poster prefix premium price printer priority
        prize process product profile profit project promise property protocol province proxy purchase puzzle
        quantity query queue quota quote radio range rank rating reader receipt recipe record rectangle referee
        region register relation release reminder rental repair report request reservation resource response
        restaurant result retailer return review reward river road robot role room root rotation round route router
        row rule salary sample scene schedule school score screen script season seat second secret section segment
        selection sender sensor sentence sequence series server service session setting shadow shape sheet shelf
        shift ship shop signal signature size slide slider slot snapshot socket song sound source species speed
        spreadsheet square stack stadium staff stage station status stock storage store story stream street string
        student subject subscriber suffix summary supplier surface survey switch symbol table target task taxi
        teacher team telescope template tenant terminal text theatre thread thumbnail ticket timer timestamp title
        toggle token tool toolbar topic tournament tower track trade train transaction transfer tree trip truck
        tunnel type unit update upload user vacancy value variable vehicle vendor venue version video village
        visitor voucher wallet warehouse warning watch wave weather website week weight wheel widget width window
        winner word worker workshop year zone""",
    "verb": """
        add append apply arrange assign attach balance bind build cache calculate call cancel capture change check
        clean clear click clone close collect combine compare compile compress compute configure connect convert
        copy count create crop decode decorate delete deploy describe detect disable display divide download drag
        draw drop duplicate edit embed enable encode encrypt escape estimate evaluate execute expand export extend
        extract fetch filter find fit flatten flush fold format forward freeze generate group handle hash hide
        highlight import increase index inject insert inspect install invert invoke iterate join label launch list
        load locate lock log map mark match measure merge migrate mock mount move multiply normalise notify open
        order pack parse paste pause pin play plot poll predict preview print process publish push query queue read
        rebuild receive record redirect reduce refresh reject release reload remove rename render repeat replace
        reset resize resolve restart restore resume retrieve retry return reverse rotate round sample save scale
        scan schedule scroll search select send serialise share shift show shuffle sign skip slice sort split stack
        start stop store stream submit subtract sum swap switch sync tag test toggle track train transform translate
        trim truncate unpack update upgrade upload validate verify wait watch wrap write zip""",
    "adjective": """
        active alphabetical ambiguous annual anonymous automatic available average binary blank blue brief broken
        busy central circular cloudy cold compact complete complex concurrent correct current daily dark decimal
        default deleted dense dependent different digital distant double duplicate dynamic early editable electric
        empty encoded encrypted equal even expired external fast fixed flat foreign free frequent frozen full
        generic global green handmade heavy hidden horizontal huge identical immutable inactive incoming incomplete
        inner invalid invisible irregular joint large last late lazy left linear local long lower manual maximum
        mean missing mobile monthly multiple mutable naked narrow negative nested new next nullable numeric obsolete
        odd offline old online optional ordinary outer outgoing parallel partial pending periodic permanent plain
        positive previous primary private public quarterly quick random raw readable recent recursive red regional
        relative remote repeated required reserved round rounded scaled second secondary separate serial shared
        short silent simple single slow small sorted sparse square stable stale static strict sudden synchronous
        temporary textual tiny top total transparent trailing unique unknown unsigned unsorted unused upper urgent
        valid vertical virtual visible weekly white whole wide wrong yellow""",
    "person": """
        Amélie André Anita Björn Boris Carmen Chloë Claudia Dana Dmitri Ebru Élodie Emeka Eszter Fatima Felix
        François Gabriel Giulia Grace Håkan Hanna Hiroshi Ibrahim Inês Ivan Jürgen Jonas José Karolína Kenji Lars
        Laura Lučija Łukasz Małgorzata Marek María Mateo Meera Mihai Nadia Nguyen Noor Oğuz Olga Omar Paulo Petra
        Priya Rafał Rania René Ruth Sanjay Şule Sigríður Søren Ștefan Tamás Théo Tomás Ursula Václav Vera Wei Wiebke
        Xavier Yara Yusuf Zoë Zuzana""",
    "city": """
        Aarhus Accra Aleppo Almaty Ankara Antwerp Asunción Athens Baku Basel Bergen Bilbao Bogotá Bordeaux Braga
        Brno Bucharest Cardiff Chișinău Cluj Córdoba Cracow Dakar Denver Dijon Dresden Durban Düsseldorf Espoo
        Galway Gdańsk Geneva Ghent Göteborg Graz Hanoi Helsinki Iași İzmir Jakarta Kampala Kiel Kochi Köln Kyoto
        Lagos Leeds León Lima Linz Lisbon Ljubljana Lviv Lyon Málaga Malmö Medellín Montréal Mumbai München Nairobi
        Nantes Oslo Ottawa Perth Plovdiv Poznań Quito Reykjavík Riga Rouen Salzburg Sapporo Seville Sibiu Split
        Szeged Tallinn Tartu Tbilisi Timișoara Toulouse Tromsø Turin Uppsala Utrecht Valparaíso Vilnius Warsaw
        Wrocław Zagreb Zürich""",
    "error": """
        AccessDenied AlreadyClosed AssertionFailed BadGateway BrokenPipe BufferOverflow CastFailed
        CertificateExpired CircularImport ClassNotFound ConnectionRefused ConnectionReset ConstraintViolation
        CorruptHeader DeadlockFound DecodeError DiskFull DivisionByZero DuplicateKey EmptyStack EndOfFile FileLocked
        ForbiddenOrigin HostUnreachable IllegalState IndexOutOfRange InvalidArgument InvalidCast InvalidCursor
        InvalidToken IterationStopped KeyMissing LinkFailure LockTimeout MalformedUrl MethodNotAllowed MissingModule
        NameNotDefined NestedTooDeep NoSuchColumn NoSuchElement NoSuchMethod NotCallable NotIterable NotSerializable
        NullPointer NumberFormat ObjectDisposed OutOfMemory OverflowDetected ParseFailure PermissionDenied PortInUse
        QuotaExceeded ReadOnlyFile RecursionLimit RequestTimeout SegmentationFault SessionExpired ShapeMismatch
        SignatureMismatch StackOverflow StaleElement SyntaxUnexpected TableLocked TooManyRequests TypeMismatch
        UnboundLocal UndefinedReference UnexpectedIndent UnhandledPromise UnknownEncoding UnknownHost
        UnreachableCode UnsupportedVersion ValueTooLarge VersionConflict""",
    "machine": """
        laptop desktop server phone tablet emulator container cluster notebook workstation virtual-machine router
        raspberry simulator mainframe kiosk""",
    "mark": "😀 🙂 😕 🤔 😭 🚀 🐍 🔥 ✅ ❌ 👍 🙏 … → € ½ ° ™ ✓ №",
    # Names of libraries are made of a first and a last syllable and do not exist: no real project is praised or blamed.
    "first": """
        aero alto amber anvil apex arbor astro aura azur basal beryl bolt brio cedar ceph cinder cobal coral crux
        cyan dapple delph dione drift ecto ember epo fable fathom fern flint fluo frost gala garn glyph gran halo
        hazel helio hydro ignis indra iris jade jolt juni karst kelp kino lark lava lumen lyra magma malt maple mica
        mora nebu nimb nova oak obsi onyx opal orbi pebb pixa plum polar prism pyro quartz quill radi raven reef
        rune sable saff sierr sigma silk solar sparr strato sumac tango tarn tele terra thist topaz tundr umber ursa
        vale vapor velv vero violet vortex wharf willow xeno yarro zeph zinc""",
    "last": """
        base beam bind box cast chart core craft dock draw edge fetch field flow form forge frame gate graph grid
        hive hub kit lane lens link lite log loom mail map mesh mint net note pack pad parse path pipe plan play
        plot point pool port press query queue rest ring route scan shell shop sync stack store tab task test text
        tide tool track tree vault view ware wire works yard""",
}

WORDS: dict[str, list[str]] = {kind: text.split() for kind, text in _LISTS.items()}
